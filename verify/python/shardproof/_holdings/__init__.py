"""What a rank holds of which tensor, whatever framework keeps it, and the ranks it is held with."""

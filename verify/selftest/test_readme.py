"""What the README shows is what the command prints, and its subject passes."""

import re

from command import REPOSITORY, CommandTest, checkpoint

README = (REPOSITORY / "README.md").read_text()


def block(language, mark):
    """The text of the README's fenced block of this language that holds the mark."""
    (found,) = [text for text in re.findall(rf"```{language}\n(.*?)```\n", README, re.DOTALL)
                if mark in text]  # fmt: skip
    return found


def comparable(output):
    """Without what differs from run to run and from machine to machine."""
    output = re.sub(r"\S*/checkpoints/", "CHECKPOINTS/", output)
    output = re.sub(r"\S*/?shardproof verify", "shardproof verify", output)
    counts = r"\d+ of \d+|skipped \d+|[\d,]+ comparisons"  # of all properties that there are
    different = rf"torch [0-9.]+|[0-9.]+ s$|{counts}"
    return re.sub(different, "...", output, flags=re.MULTILINE)


class Readme(CommandTest):
    labels = "selftest process"
    fixtures = "checkpoints"

    def test_the_failing_output_is_what_the_command_prints(self):
        typed, _, shown = block("", "--inject").partition("\n")
        words = typed.removeprefix("$ build/shardproof ").split()
        place = words.index("--checkpoint") + 1
        words[place] = checkpoint(words[place].rpartition("/")[2])
        done = self.shardproof(*words)
        self.assert_exit(done, 1)
        self.assertEqual(comparable(done.out), comparable(shown))


class ReadmesSubject(CommandTest):
    labels = "selftest framework"
    fixtures = "checkpoints"

    def test_it_passes(self):
        path = self.write("my_fsdp2.py", block("python", "def run(case, observe)"))
        done = self.shardproof("verify", "--subject", path, "--mesh", "2x2",
                               "--checkpoint", checkpoint("qwen3-small"))  # fmt: skip
        self.assert_exit(done, 0)
        self.assertIn("passed", done.out)

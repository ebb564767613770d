// Numbers for the calls that x86-64 has and newer architectures do not, where each is a case of
// another call: so that all that knows calls compiles there, though nothing is traced (tracer.cc).
#pragma once

#include <sys/syscall.h>

#ifndef SYS_open
#define SYS_creat (-1)
#define SYS_dup2 (-2)
#define SYS_link (-3)
#define SYS_mkdir (-4)
#define SYS_mknod (-5)
#define SYS_open (-6)
#define SYS_rename (-7)
#define SYS_rmdir (-8)
#define SYS_symlink (-9)
#define SYS_unlink (-10)
#endif

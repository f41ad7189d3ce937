/*
 * pause: the first process of every pod. It holds the pod's namespaces open,
 * reaps orphans when the pod shares its process namespace, and ends on SIGINT
 * or SIGTERM. No libc: a few hundred bytes of code, no heap, one page of stack.
 *
 * It has no signal handlers. Signals are blocked and taken one by one with
 * rt_sigtimedwait, which the kernel also allows for process 1 (a blocked signal
 * is queued even where its default action would be ignored).
 */

#define SIGINT 2
#define SIGTERM 15
#define SIGCHLD 17
#define WNOHANG 1
#define SIG_BLOCK 0
#define EINTR 4

#if defined(__x86_64__)
#define NR_rt_sigprocmask 14
#define NR_wait4 61
#define NR_rt_sigtimedwait 128
#define NR_exit_group 231

static long sys(long nr, long a, long b, long c, long d)
{
	long ret;
	register long r10 __asm__("r10") = d;
	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
#define NR_rt_sigprocmask 135
#define NR_wait4 260
#define NR_rt_sigtimedwait 137
#define NR_exit_group 94

static long sys(long nr, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3)
			 : "memory");
	return x0;
}
#else
#error "pause knows the system calls of amd64 and arm64 only"
#endif

#define BIT(sig) (1UL << ((sig)-1))

void _start(void)
{
	unsigned long set = BIT(SIGINT) | BIT(SIGTERM) | BIT(SIGCHLD);
	long sig;

	sys(NR_rt_sigprocmask, SIG_BLOCK, (long)&set, 0, sizeof(set));
	for (;;) {
		sig = sys(NR_rt_sigtimedwait, (long)&set, 0, 0, sizeof(set));
		if (sig == SIGCHLD) {
			while (sys(NR_wait4, -1, 0, WNOHANG, 0) > 0)
				;
		} else if (sig > 0) {
			sys(NR_exit_group, 0, 0, 0, 0);
		} else if (sig != -EINTR) {
			sys(NR_exit_group, 1, 0, 0, 0);
		}
	}
}

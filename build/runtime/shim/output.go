package main

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// outputs keeps what containers print until somebody has read it.
//
// A container prints into named pipes that kemudi reads. While kemudi is away
// the kernel keeps what is in a pipe (64 KiB), but only as long as someone has
// the pipe open, and containerd's shim closes it when the container ends. So
// the last words of a container that ends meanwhile would be lost. Here the
// pipe stays open for reading until the container is deleted.
type outputs struct {
	mu   sync.Mutex
	held map[string][]*output // by container
}

type output struct {
	path    string
	fd      int  // open for reading, never read from
	offered bool // open for writing, so that a reader can open it too
}

// hold keeps the pipes at the given paths open; what is not a pipe is ignored.
func (o *outputs) hold(id string, paths ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, path := range paths {
		var st unix.Stat_t
		if path == "" || unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
			continue
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // as if it were not held
		}
		o.held[id] = append(o.held[id], &output{path: path, fd: fd})
	}
}

// offer lets a reader open the pipes of a container that has ended: opening
// waits for a writer, and there is none any more. The offer stands until all is
// read, and no longer than patience.
func (o *outputs) offer(id string, patience time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.held[id] {
		if p.offered || unread(p.fd) == 0 {
			continue
		}
		w, err := unix.Open(p.path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		r, err := unix.FcntlInt(uintptr(p.fd), unix.F_DUPFD_CLOEXEC, 0) // release may close the other
		if err != nil {
			unix.Close(w)
			continue
		}
		p.offered = true
		o.withdraw(p, w, r, time.Now().Add(patience))
	}
}

// withdraw ends an offer, which consists of the writer w and the reader r, when
// everything is read or its time is up. Nothing tells that, so it looks again.
func (o *outputs) withdraw(p *output, w, r int, end time.Time) {
	time.AfterFunc(time.Millisecond, func() {
		if unread(r) > 0 && time.Now().Before(end) {
			o.withdraw(p, w, r, end)
			return
		}
		unix.Close(w)
		unix.Close(r)
		o.mu.Lock()
		defer o.mu.Unlock()
		p.offered = false
	})
}

// release lets go of a container's pipes.
func (o *outputs) release(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.held[id] {
		unix.Close(p.fd)
	}
	delete(o.held, id)
}

// unread returns how many bytes are in a pipe. TIOCINQ is another name of FIONREAD.
func unread(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// Package port keeps ports of the loopback for tests that must name one before somebody
// listens: a member's address, the port of a server that is started again. It is for tests
// only. Who can hand over a listener does that instead.
package port

import (
	"net"
	"strconv"
	"syscall"
	"testing"
)

// Reserve returns a TCP port of 127.0.0.1 that is the caller's until its test ends, whatever
// other tests and programs do meanwhile: a socket is bound to it that does not listen. The
// kernel gives such a port neither to who asks for any port nor to outgoing connections, but
// lets it to listeners that name it, as long as they set SO_REUSEADDR, as those of Go do.
func Reserve(t testing.TB) uint16 {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	return uint16(at.(*syscall.SockaddrInet4).Port)
}

// Address is a reserved port with its address, "127.0.0.1:40123".
func Address(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(Reserve(t))))
}

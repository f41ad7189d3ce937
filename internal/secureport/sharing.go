package secureport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// Sharing says with whom a port is shared: the kernel gives connections to any of those who listen and allow it.
type Sharing struct {
	Port bool // --permit-port-sharing
}

// AddFlags adds upstream's flags.
func (s *Sharing) AddFlags(f *pflag.FlagSet) {
	f.BoolVar(&s.Port, "permit-port-sharing", s.Port, "let other processes of this user listen on the port at the same time, that allow it as well: connections go to any of them")
	f.Bool("permit-address-sharing", true, "for scripts: the address of a port may be that of connections of before, always")
}

// Listen listens on a port of TCP.
func (s Sharing) Listen(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
	var config net.ListenConfig
	if s.Port {
		config.Control = share
	}
	return config.Listen(ctx, "tcp", at.String())
}

func share(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	return errors.Join(err, failed)
}

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// connect tries a connection; on failure the first word it prints tells why.
func connect(args []string) int {
	var timeout time.Duration
	var protocol, data string
	rest := flags("connect", args, func(f *pflag.FlagSet) {
		f.DurationVar(&timeout, "timeout", 0, "how long to try")
		f.StringVar(&protocol, "protocol", "tcp", "tcp or udp")
		f.StringVar(&data, "udp-data", "hostname", "what to send over UDP")
	})
	if len(rest) != 1 {
		fail("accepts 1 arg(s), received %d", len(rest))
	}
	var err error
	switch protocol {
	case "", "tcp":
		err = connectTCP(rest[0], timeout)
	case "udp":
		err = connectUDP(rest[0], timeout, data)
	default:
		err = fmt.Errorf("UNKNOWN: unsupported protocol %s", protocol)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func connectTCP(dest string, timeout time.Duration) error {
	if _, _, err := net.SplitHostPort(dest); err != nil {
		return fmt.Errorf("UNKNOWN: %w", err)
	}
	if _, err := net.ResolveTCPAddr("tcp", dest); err != nil {
		return fmt.Errorf("DNS: %w", err)
	}
	c, err := net.DialTimeout("tcp", dest, timeout)
	if err == nil {
		c.Close()
		return nil
	}
	return explain(err)
}

func connectUDP(dest string, timeout time.Duration, data string) error {
	if _, err := net.ResolveUDPAddr("udp", dest); err != nil {
		return fmt.Errorf("DNS: %w", err)
	}
	c, err := net.Dial("udp", dest)
	if err != nil {
		return explain(err)
	}
	defer c.Close()
	if timeout > 0 {
		c.SetDeadline(time.Now().Add(timeout))
	}
	if _, err := fmt.Fprintln(c, data); err != nil {
		return explain(err)
	}
	if _, err := c.Read(make([]byte, 1024)); err != nil {
		return explain(err)
	}
	return nil
}

func explain(err error) error {
	var ne net.Error
	switch {
	case errors.As(err, &ne) && ne.Timeout():
		return errors.New("TIMEOUT")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("REFUSED")
	default:
		return fmt.Errorf("OTHER: %w", err)
	}
}

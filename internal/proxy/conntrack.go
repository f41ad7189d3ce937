package proxy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

// Conntrack are limits of the connections that the machine tracks. What is zero stays
// as the machine has it.
type Conntrack struct {
	MaxPerCore     int           // connections for each core
	Min            int           // connections, however few cores there are; only with MaxPerCore
	TCPEstablished time.Duration // how long a TCP connection without packets is kept
	TCPCloseWait   time.Duration // the same, once one end has closed it
	UDP            time.Duration // how long a UDP flow without answers is kept
	UDPStream      time.Duration // the same, with answers
	TCPLiberal     bool          // packets outside of a TCP connection's window are no invalid ones
}

// conntrackDir has the settings of the network namespace that reads it.
const conntrackDir = "/proc/sys/net/netfilter"

// Set writes the limits of the machine, or of the network namespace of the calling
// thread those that each has for itself. A limit that cannot be set is named in the
// error; the others are set all the same.
func (c Conntrack) Set() error {
	var failed []error
	for _, s := range c.settings(runtime.NumCPU()) {
		path := filepath.Join(conntrackDir, s.name)
		if err := os.WriteFile(path, []byte(s.value), 0o644); err != nil {
			failed = append(failed, fmt.Errorf("set %s to %s: %w", s.name, s.value, err))
		}
	}
	return errors.Join(failed...)
}

type conntrackSetting struct{ name, value string }

func (c Conntrack) settings(cores int) (all []conntrackSetting) {
	if c.MaxPerCore > 0 {
		all = append(all, conntrackSetting{"nf_conntrack_max", strconv.Itoa(max(c.MaxPerCore*cores, c.Min))})
	}
	for _, t := range []struct {
		name string
		d    time.Duration
	}{
		{"nf_conntrack_tcp_timeout_established", c.TCPEstablished}, {"nf_conntrack_tcp_timeout_close_wait", c.TCPCloseWait},
		{"nf_conntrack_udp_timeout", c.UDP}, {"nf_conntrack_udp_timeout_stream", c.UDPStream},
	} {
		if seconds := int(t.d / time.Second); seconds > 0 {
			all = append(all, conntrackSetting{t.name, strconv.Itoa(seconds)})
		}
	}
	if c.TCPLiberal {
		all = append(all, conntrackSetting{"nf_conntrack_tcp_be_liberal", "1"})
	}
	return all
}

package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Interface is a link of a network, and what has passed it since it is there.
type Interface struct {
	Name           string
	Received, Sent Traffic
}

// Traffic is what has passed a link in one direction.
type Traffic struct{ Bytes, Packets, Errors, Dropped uint64 }

// Interfaces are the links that a process sees, "self" this one, but for its own loopback device and for ends of
// links to pods.
func Interfaces(process string) ([]Interface, error) {
	text, err := os.ReadFile(filepath.Join("/proc", process, "net/dev"))
	if err != nil {
		return nil, fmt.Errorf("read what has passed links: %w", err)
	}
	return parseInterfaces(string(text)), nil
}

// parseInterfaces reads /proc/net/dev: two lines of titles, then a link a line with eight columns of what it received and
// eight of what it sent.
func parseInterfaces(text string) (list []Interface) {
	for line := range strings.Lines(text) {
		name, numbers, ok := strings.Cut(line, ":")
		f := strings.Fields(numbers)
		if name = strings.TrimSpace(name); !ok || len(f) < 16 || name == "lo" || strings.HasPrefix(name, "veth") {
			continue
		}
		i := Interface{Name: name}
		whole := true
		for n, into := range map[int]*uint64{
			0: &i.Received.Bytes, 1: &i.Received.Packets, 2: &i.Received.Errors, 3: &i.Received.Dropped,
			8: &i.Sent.Bytes, 9: &i.Sent.Packets, 10: &i.Sent.Errors, 11: &i.Sent.Dropped,
		} {
			var err error
			*into, err = strconv.ParseUint(f[n], 10, 64)
			whole = whole && err == nil
		}
		if whole {
			list = append(list, i)
		}
	}
	return list
}

// DefaultInterface is the link by which this process reaches what no other route leads to, by IPv4; empty: there is none.
func DefaultInterface() string {
	text, err := os.ReadFile("/proc/self/net/route")
	if err != nil {
		return ""
	}
	return parseRoutes(string(text))
}

// parseRoutes reads /proc/net/route, whose columns are the link, the destination, six others, and the mask.
func parseRoutes(text string) string {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 8 && f[1] == "00000000" && f[7] == "00000000" {
			return f[0]
		}
	}
	return ""
}

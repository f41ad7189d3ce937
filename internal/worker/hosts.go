package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// hostsFile is what the container runtime begins the hosts file of every pod
// with: without it no pod starts.
const hostsFile = "/etc/hosts"

// ourHosts is the hosts file of a machine that had none. It is told by its first
// line from one that somebody has changed.
const ourHosts = `# Written by kemudi, since this machine had none; kemudi reset removes it.
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
`

// ensureHosts writes a hosts file where there is none, as on a machine that was
// put together by debootstrap.
func ensureHosts(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("this machine has no %s, which pods need, and it cannot be written: %w", file, err)
	}
	_, err = f.WriteString(ourHosts)
	// Whatever the umask is: programs of other users and containers read it.
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// removeHosts removes the file that ensureHosts wrote, if nobody has changed it.
func removeHosts(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil || string(data) != ourHosts {
		return nil, nil
	}
	if err := os.Remove(file); err != nil {
		return nil, fmt.Errorf("remove %s: %w", file, err)
	}
	return []string{file}, nil
}

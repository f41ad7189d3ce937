package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// sysctlRoot is where the kernel shows its parameters, those of the calling
// thread's network namespace.
const sysctlRoot = "/proc/sys"

// sysctl is a parameter and the value that we need it to have.
type sysctl struct{ name, value string }

// hostSysctls are the parameters that do not belong to our own bridge.
func hostSysctls(o *Options) ([]sysctl, error) {
	list := []sysctl{
		// Or 127.0.0.1 could not be translated to a pod's address, for node ports
		// and host ports. The rules see to it that nothing comes in by that.
		{"net/ipv4/conf/all/route_localnet", "1"},
		// Pods are sent by way of the gateway on purpose: do not tell them of a
		// shorter one. The setting counts together with that of each link.
		{"net/ipv4/conf/all/send_redirects", "0"},
	}
	for _, p := range o.PodCIDRs {
		if p.Addr().Is4() {
			list = append(list, sysctl{forwarding(p.Addr()), "1"})
			continue
		}
		// A router ignores router advertisements, from which this node may have
		// its own address and way out, unless told otherwise.
		routers, err := advertisedLinks()
		if err != nil {
			return nil, err
		}
		list = append(append(list, routers...), sysctl{forwarding(p.Addr()), "1"})
	}
	return list, nil
}

func bridgeSysctls(o *Options) []sysctl {
	return []sysctl{{"net/ipv4/conf/" + o.Bridge + "/send_redirects", "0"}}
}

// advertisedLinks lists the links that take router advertisements as long as
// the node is no router.
func advertisedLinks() ([]sysctl, error) {
	if readSysctl("net/ipv6/conf/all/forwarding") == "1" {
		return nil, nil
	}
	files, err := filepath.Glob(sysctlRoot + "/net/ipv6/conf/*/accept_ra")
	if err != nil {
		return nil, err
	}
	var list []sysctl
	for _, f := range files {
		name := strings.TrimPrefix(f, sysctlRoot+"/")
		if readSysctl(name) == "1" && !strings.HasSuffix(name, "/lo/accept_ra") {
			list = append(list, sysctl{name, "2"})
		}
	}
	return list, nil
}

func readSysctl(name string) string {
	b, err := os.ReadFile(filepath.Join(sysctlRoot, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func writeSysctl(name, value string) error {
	if err := os.WriteFile(filepath.Join(sysctlRoot, name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", name, value, err)
	}
	return nil
}

// changed is what the record says of a parameter that we changed.
type changed struct {
	Was, Is string
}

// ensureSysctls sets parameters, noting first in the record file what they were.
func ensureSysctls(list []sysctl, file string) error {
	record, err := readRecord(file)
	if err != nil {
		return err
	}
	var todo []sysctl
	for _, s := range list {
		now := readSysctl(s.name)
		if now == s.value {
			continue
		}
		if _, known := record[s.name]; !known {
			record[s.name] = changed{Was: now, Is: s.value}
		}
		todo = append(todo, s)
	}
	if len(todo) == 0 {
		return nil
	}
	data, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return fmt.Errorf("encode sysctl record: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("write sysctl record: %w", err)
	}
	if err := wholefile.Write(file, data, 0o644); err != nil {
		return fmt.Errorf("write sysctl record: %w", err)
	}
	for _, s := range todo {
		if err := writeSysctl(s.name, s.value); err != nil {
			return err
		}
	}
	return nil
}

func readRecord(file string) (map[string]changed, error) {
	record := map[string]changed{}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return record, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read sysctl record: %w", err)
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return nil, fmt.Errorf("decode sysctl record %s: %w", file, err)
	}
	return record, nil
}

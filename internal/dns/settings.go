package dns

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/miekg/dns"
)

// settingsName is the config map, in kube-system, by which an administrator
// says where questions about names outside of the cluster go.
const settingsName = "kube-dns"

// upstreams are the servers for names outside of the cluster.
type upstreams struct {
	servers []netip.AddrPort            // for all names; none: those are refused
	stubs   map[string][]netip.AddrPort // by domain, with a dot at the end, for names in it
}

// parseSettings reads the data of the config map. Without upstreamNameservers
// there are no servers in what it returns.
func parseSettings(data map[string]string) (upstreams, error) {
	var (
		u       upstreams
		servers []string
		stubs   map[string][]string
		err     error
	)
	if text := data["upstreamNameservers"]; text != "" {
		if err := json.Unmarshal([]byte(text), &servers); err != nil {
			return u, fmt.Errorf("upstreamNameservers: %w", err)
		}
	}
	if text := data["stubDomains"]; text != "" {
		if err := json.Unmarshal([]byte(text), &stubs); err != nil {
			return u, fmt.Errorf("stubDomains: %w", err)
		}
	}
	if u.servers, err = parseServers(servers); err != nil {
		return u, fmt.Errorf("upstreamNameservers: %w", err)
	}
	u.stubs = map[string][]netip.AddrPort{}
	for domain, list := range stubs {
		zone := strings.ToLower(dns.Fqdn(domain))
		if _, ok := dns.IsDomainName(zone); !ok || zone == "." {
			return u, fmt.Errorf("stubDomains: %q is not a domain", domain)
		}
		if u.stubs[zone], err = parseServers(list); err != nil {
			return u, fmt.Errorf("stubDomains: %s: %w", domain, err)
		}
	}
	return u, nil
}

// parseServers reads addresses with or without a port.
func parseServers(list []string) ([]netip.AddrPort, error) {
	var servers []netip.AddrPort
	for _, s := range list {
		if ip, err := netip.ParseAddr(s); err == nil {
			servers = append(servers, netip.AddrPortFrom(ip, 53))
			continue
		}
		at, err := netip.ParseAddrPort(s)
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor an address with a port", s)
		}
		servers = append(servers, at)
	}
	return servers, nil
}

// nameservers reads the servers of a resolv.conf file; a missing file names none.
func nameservers(file string) ([]netip.AddrPort, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read dns servers: %w", err)
	}
	defer f.Close()
	var servers []netip.AddrPort
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if ip, err := netip.ParseAddr(fields[1]); err == nil {
			servers = append(servers, netip.AddrPortFrom(ip, 53))
		}
	}
	return servers, lines.Err()
}

// searches reads the search list of a resolv.conf file. None can be read: it is empty.
func searches(file string) []string {
	c, err := dns.ClientConfigFromFile(file)
	if err != nil {
		return nil
	}
	list := make([]string, len(c.Search))
	for i, s := range c.Search {
		list[i] = strings.ToLower(dns.Fqdn(s))
	}
	return list
}

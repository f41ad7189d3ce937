package gateway

import "strings"

// hosts are those that the routes of one kind have on a listener.
type hosts struct {
	own   map[string]bool // as they are written; the empty one is all
	above map[string]bool // hosts that have one of them among their names
}

// over calls each for the hosts that have all names of a host, and more.
func over(host string, each func(wider string) bool) bool {
	base := strings.TrimPrefix(host, "*.")
	for i := range len(base) {
		if base[i] == '.' && each("*"+base[i:]) {
			return true
		}
	}
	return host != "" && each("")
}

func (h *hosts) add(list []string) {
	for _, host := range list {
		h.own[host] = true
		over(host, func(wider string) bool {
			h.above[wider] = true
			return false
		})
	}
}

// meet is the first of some hosts that has a name in common with these.
func (h *hosts) meet(list []string) (host string, ok bool) {
	for _, host := range list {
		if h.own[host] || h.above[host] || over(host, func(wider string) bool { return h.own[wider] }) {
			return host, true
		}
	}
	return "", false
}

// rivals are the kinds of which a listener has, for each name, routes of one alone: those of the older route.
var rivals = map[string]string{"HTTPRoute": "GRPCRoute", "GRPCRoute": "HTTPRoute"}

// rival is a host that a route of the other kind has on the listener, of those that one is to have.
func (l *listener) rival(kind string, list []string) (host string, ok bool) {
	if other := l.hosts[rivals[kind]]; other != nil {
		return other.meet(list)
	}
	return "", false
}

// occupy notes the hosts of a route that is attached.
func (l *listener) occupy(kind string, list []string) {
	if rivals[kind] == "" {
		return
	}
	if l.hosts == nil {
		l.hosts = map[string]*hosts{}
	}
	if l.hosts[kind] == nil {
		l.hosts[kind] = &hosts{own: map[string]bool{}, above: map[string]bool{}}
	}
	l.hosts[kind].add(list)
}

package dns

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// page sets up one of the directives that serve something by HTTP: health, ready and
// prometheus. It is served on the addresses of DNS, and not on others of the machine.
func (l *loading) page(c *caddy.Controller, name string) error {
	address, err := pageAddress(c, name)
	if err != nil {
		return plugin.Error(name, err)
	}
	p, err := l.portOf(address)
	if err != nil {
		return plugin.Error(name, c.Err(err.Error()))
	}
	if l.pages[p] == nil {
		l.pages[p] = map[string]http.Handler{}
	}
	switch name {
	case "health":
		l.pages[p]["/health"] = http.HandlerFunc(fine)
	case "ready": // these servers listen when they know the cluster, and not before
		l.pages[p]["/ready"] = http.HandlerFunc(fine)
	case "prometheus":
		l.pages[p]["/metrics"] = promhttp.HandlerFor(prometheus.Gatherers{prometheus.GathererFunc(ofDNS(prometheus.DefaultGatherer.Gather)), l.s.measured}, promhttp.HandlerOpts{})
		l.measure(c)
	}
	return nil
}

// pageAddress reads a directive, and checks it as CoreDNS does.
func pageAddress(c *caddy.Controller, name string) (string, error) {
	address := map[string]string{"health": ":8080", "ready": ":8181", "prometheus": ":9153"}[name]
	for n := 0; c.Next(); n++ {
		args := c.RemainingArgs()
		switch {
		case n > 0 && name != "health":
			return "", plugin.ErrOnce
		case len(args) > 1:
			return "", c.ArgErr()
		case len(args) == 1:
			address = args[0]
		}
		for c.NextBlock() {
			if err := pageOption(c, name, c.Val(), c.RemainingArgs()); err != nil {
				return "", err
			}
		}
	}
	return address, nil
}

// pageOption checks one line of a directive's block. What it asks for has no meaning for a
// server that ends with its machine's process.
func pageOption(c *caddy.Controller, name, option string, args []string) error {
	switch {
	case name == "health" && option == "lameduck" && len(args) == 1:
		if _, err := time.ParseDuration(args[0]); err != nil {
			return c.Errf("unable to parse lameduck duration value: '%v' : %v", args[0], err)
		}
	case name == "ready" && option == "monitor" && len(args) == 1:
		if args[0] != "until-ready" && args[0] != "continuously" {
			return c.Errf("monitor type '%s' not supported", args[0])
		}
	case name == "prometheus" && option == "runtime_metrics" && len(args) == 0:
	default:
		return c.Errf("unknown property '%s'", option)
	}
	return nil
}

func fine(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, http.StatusText(http.StatusOK)) // who does not want it is gone
}

// measure counts the questions of the block.
func (l *loading) measure(c *caddy.Controller) {
	m := metrics.New(":0")
	for _, z := range plugin.OriginsFromArgsOrServerBlock(nil, c.ServerBlockKeys) {
		m.AddZone(z)
	}
	config := dnsserver.GetConfig(c)
	l.measured = append(l.measured, config)
	config.AddPlugin(func(next plugin.Handler) plugin.Handler {
		m.Next = next
		return m
	})
}

// ofDNS leaves of what has been counted what CoreDNS and the process have, of all that the
// libraries of the process do.
func ofDNS[F interface{ GetName() string }](gather func() ([]F, error)) func() ([]F, error) {
	return func() ([]F, error) {
		all, err := gather()
		return slices.DeleteFunc(all, func(f F) bool {
			return !slices.ContainsFunc([]string{"coredns_", "go_", "process_"}, func(prefix string) bool { return strings.HasPrefix(f.GetName(), prefix) })
		}), err
	}
}

// Bounds of a request for a page.
const (
	pageTimeout = 5 * time.Second
	pageHeader  = 8 << 10
)

// pagesOn serves what the Corefile has by HTTP on a port.
func (s *Server) pagesOn(ctx context.Context, port uint16) *http.Server {
	return &http.Server{
		ReadTimeout: pageTimeout, WriteTimeout: pageTimeout, IdleTimeout: pageTimeout, MaxHeaderBytes: pageHeader,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := s.enter(ctx)
			if c == nil {
				http.Error(w, "Shutting down", http.StatusServiceUnavailable)
				return
			}
			h := c.pages[port][r.URL.Path]
			c.leave()
			if h == nil {
				http.NotFound(w, r)
				return
			}
			h.ServeHTTP(w, r)
		}),
	}
}

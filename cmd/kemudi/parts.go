package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/cloudmanager"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/parts"
)

// Names of the parts that are programs elsewhere.
const (
	apiServerName = "kube-apiserver"
	kubeletName   = "kubelet"
)

// partNames are the names of the parts: called by one of them, through a link, the program is that part.
func partNames() []string {
	return []string{cloudmanager.Name, apiServerName, parts.ControllerManagerName, parts.SchedulerName, kubeletName, parts.ProxyName}
}

// part is one part alone, as a command. It takes upstream's flags from its command line and, where
// upstream does, from its configuration file, but nothing from the settings of servers and agents.
type part struct {
	name, short, long, example string

	flags  func(f *pflag.FlagSet)
	idle   []idleFlag
	shared []idleFlag  // those of several parts, as far as it has not such flags itself
	config *configKind // what --config names; nil: there is no such flag
	run    func(ctx context.Context, log *slog.Logger, step func(name string, ready bool)) error
}

// idleFlag is a flag that scripts and manifests made for upstream's program have and nothing
// follows from here.
type idleFlag struct {
	name, why string
	bool      bool // it may stand without a value
}

// Reasons that several flags and fields have.
const (
	actedOn    = "everything is acted on when it happens, not every so often"
	remembered = "answers of the API server are remembered for as long as upstream does"
	byNumber   = "calls are limited by number, not by rate"
	notWaited  = "what is waited for is not measured"
)

// alwaysIdle are those of all parts.
var alwaysIdle = []idleFlag{
	{name: "vmodule", why: "--log-level is for all that is logged"},
	{name: "log-flush-frequency", why: "what is logged is written at once"},
	{name: "log-json-info-buffer-size", why: "what is logged is written at once"},
	{name: "log-json-split-stream", why: "all goes to the standard error", bool: true},
	{name: "log-text-info-buffer-size", why: "what is logged is written at once"},
	{name: "log-text-split-stream", why: "all goes to the standard error", bool: true},
	{name: "allow-metric-labels", why: "labels of metrics are bounded by themselves"},
	{name: "allow-metric-labels-manifest", why: "labels of metrics are bounded by themselves"},
	{name: "disabled-metrics", why: "who scrapes may leave metrics out"},
	{name: "show-hidden-metrics-for-version", why: "no metric is hidden"},
}

// clientIdle are those of parts that ask an API server.
var clientIdle = []idleFlag{
	{name: "kube-api-qps", why: byNumber},
	{name: "kube-api-burst", why: byNumber},
	{name: "kube-api-content-type", why: "what is sent and taken is what the API server has for each kind"},
	{name: "contention-profiling", why: notWaited, bool: true},
}

// portIdle are those of parts that know who asks by asking an API server.
var portIdle = []idleFlag{
	{name: "cert-dir", why: "a certificate that nobody has signed is kept in memory"},
	{name: "authentication-token-webhook-cache-ttl", why: remembered},
	{name: "authorization-webhook-cache-authorized-ttl", why: remembered},
	{name: "authorization-webhook-cache-unauthorized-ttl", why: remembered},
	{name: "disable-http2-serving", why: "few ask", bool: true},
	{name: "http2-max-streams-per-connection", why: "few ask"},
}

func (p part) command() *cobra.Command {
	var logs obs.LogOptions
	var verbosity int
	var asked versionFlag
	c := &cobra.Command{
		Use: p.name, Short: p.short, Long: p.long, Example: p.example, Args: noArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // settings are of servers and agents
		RunE: func(c *cobra.Command, _ []string) error {
			if asked.print() {
				return nil
			}
			if verbosity >= obs.VerbosityOfDebug && !c.Flags().Changed("log-level") {
				logs.Level = "debug"
			}
			log, step, err := foreground(logs)
			if err != nil {
				return err
			}
			if err := p.settle(c.Flags(), log); err != nil {
				return err
			}
			return p.run(obs.WithFlags(c.Context(), obs.Told(c.Flags())), log, step)
		},
	}
	f := c.Flags()
	logs.AddFlags(f)
	asked.add(f)
	f.StringVar(&logs.Format, "logging-format", "text", "upstream's name of --log-format")
	f.IntVarP(&verbosity, "v", "v", 0, "how much is logged, as upstream counts: from 4 on, everything")
	if p.config != nil {
		f.String(configFlag, "", "file of a "+p.config.kind+"; flags go before it")
	}
	if p.config != nil && p.config.dropIns {
		f.String(configDirFlag, "", "directory of files of the same kind, *.conf, which go before --config, the last one before the others")
	}
	p.flags(f)
	for _, idle := range slices.Concat(alwaysIdle, p.shared) {
		if f.Lookup(idle.name) == nil && !slices.ContainsFunc(p.idle, func(own idleFlag) bool { return own.name == idle.name }) {
			p.idle = append(p.idle, idle)
		}
	}
	for _, idle := range p.idle {
		f.String(idle.name, "", "taken for scripts, and without effect: "+idle.why)
		if idle.bool {
			f.Lookup(idle.name).NoOptDefVal = "true"
		}
	}
	return c
}

// settle reads the configuration file, if one is named, and says what has no effect.
func (p *part) settle(f *pflag.FlagSet, log *slog.Logger) error {
	for _, idle := range p.idle {
		if f.Changed(idle.name) {
			log.Warn("a flag has no effect", "flag", "--"+idle.name, "why", idle.why)
		}
	}
	if p.config == nil {
		return nil
	}
	names, err := configNames(f)
	if err != nil || len(names) == 0 {
		return err
	}
	var files [][]byte
	for _, name := range names {
		data, err := os.ReadFile(filepath.Clean(name))
		if err != nil {
			return fmt.Errorf("--config: %w", err)
		}
		files = append(files, data)
	}
	idle, err := p.config.apply(f, files...)
	if err != nil {
		return errUsage{fmt.Errorf("--config %s: %w", strings.Join(names, ", "), err)}
	}
	for _, i := range idle {
		log.Warn("a field of --config has no effect", "field", i.field, "why", i.why)
	}
	return nil
}

// configDirFlag names the directory of further configuration files.
const configDirFlag = "config-dir"

// configNames are the configuration files that are named, in the order in which they count.
func configNames(f *pflag.FlagSet) (names []string, _ error) {
	if f.Changed(configFlag) {
		names = append(names, f.Lookup(configFlag).Value.String())
	}
	dir := f.Lookup(configDirFlag)
	if dir == nil || !dir.Changed {
		return names, nil
	}
	err := filepath.WalkDir(dir.Value.String(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".conf" {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("--config-dir: %w", err)
	}
	return names, nil
}

func addKubeconfigFlags(f *pflag.FlagSet, o *parts.API) {
	f.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "file that says where the API is and who asks; default: as the pod that this runs in")
	f.StringVar(&o.Master, "master", o.Master, "URL of the API server, in place of that in the kubeconfig")
}

// addOfficeFlags adds how leaders are elected.
func addOfficeFlags(f *pflag.FlagSet, e *parts.Election) {
	f.VarPF((*notFlag)(&e.Off), "leader-elect", "", "elect, of several such processes, which works").NoOptDefVal = "true"
	f.DurationVar(&e.LeaseDuration, "leader-elect-lease-duration", e.LeaseDuration, "how long others wait for a leader that is silent before they take over")
	f.DurationVar(&e.RenewDeadline, "leader-elect-renew-deadline", e.RenewDeadline, "how long a leader tries to renew its lease before it gives up; less than the lease's duration")
	f.DurationVar(&e.RetryPeriod, "leader-elect-retry-period", e.RetryPeriod, "how long it waits between two tries, and how often others look at the lease")
	f.StringVar(&e.Lock, "leader-elect-resource-lock", e.Lock, "kind of object that is held: leases")
	f.StringSliceVar(&e.Names, "leader-elect-resource-name", e.Names, "name of the lease")
	f.StringVar(&e.Namespace, "leader-elect-resource-namespace", e.Namespace, "namespace of the lease")
}

// addrPortFlag is an address with a port, or one of them.
type addrPortFlag netip.AddrPort

func (a *addrPortFlag) Type() string { return "ip:port" }
func (a *addrPortFlag) String() string {
	if at := netip.AddrPort(*a); at.IsValid() {
		return at.String()
	}
	return ""
}

func (a *addrPortFlag) Set(s string) error {
	now := netip.AddrPort(*a)
	if addr, err := netip.ParseAddr(s); err == nil {
		*a = addrPortFlag(netip.AddrPortFrom(addr, now.Port()))
		return nil
	}
	if port, ok := cutPort(s); ok {
		*a = addrPortFlag(netip.AddrPortFrom(now.Addr(), port))
		return nil
	}
	at, err := netip.ParseAddrPort(s)
	if err != nil {
		return errors.New("want an address, :port or address:port")
	}
	*a = addrPortFlag(at)
	return nil
}

// cutPort reads ":port".
func cutPort(s string) (uint16, bool) {
	if len(s) < 2 || s[0] != ':' {
		return 0, false
	}
	n, err := strconv.ParseUint(s[1:], 10, 16)
	return uint16(n), err == nil
}

// featureGates are idle for all parts.
var featureGates = idleFlag{name: "feature-gates", why: "what there is here is on, and nothing else is there"}

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/plugins"
	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/apiserver/discovery"
	"github.com/kemudi/kemudi/internal/audit"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/version"
)

// API says how the API is served, each field by its flag. The zero value has the
// defaults.
type API struct {
	RuntimeConfig    map[string]bool   // --runtime-config: group-versions on or off
	EncodedCacheSize int64             // --encoded-cache-bytes
	RequestTimeout   time.Duration     // --request-timeout
	WatchTime        *int64            // --min-request-timeout, in seconds; nil: the default
	EventTTL         time.Duration     // --event-ttl
	MaxReads         int               // --max-requests-inflight
	MaxWrites        int               // --max-mutating-requests-inflight
	MemoryLimit      int64             // --memory-limit, in bytes; 0: three quarters of what there is
	FrameByFrame     bool              // --coalesce-http2, which if false says: send each frame of HTTP/2 by itself
	Serving          apiserver.Serving // --goaway-chance and others
	NoProfiling      bool              // --profiling=false
	Contention       bool              // --contention-profiling
	Plugins          plane.Plugins
	PluginConfigFile string        // --admission-control-config-file, which is read into Plugins
	Audit            Audit         // --audit-policy-file and others
	Authorization    Authorization // --authorization-mode and others
	Encryption       Encryption
	EgressFile       string       // --egress-selector-config-file
	TracingFile      string       // --tracing-config-file, which is read into tracing
	Features         FeatureGates // --feature-gates
	Emulation        Emulation
	Coordinated      leader.Settings // --coordinated-leadership-lease-duration and others

	tracing *tracing.Config // nil: nothing is traced
}

// Emulation says which release a server acts as, each field by its flag.
type Emulation struct {
	Version    []string // --emulated-version
	Compatible []string // --min-compatibility-version
	Forward    bool     // --emulation-forward-compatible
	Explicit   bool     // --runtime-config-emulation-forward-compatible
}

// settled is what follows for what is served.
func (e *Emulation) settled() (discovery.Emulation, error) {
	l, err := version.ParseLevel(e.Version, e.Compatible)
	if err != nil {
		return discovery.Emulation{}, fmt.Errorf("--emulated-version, --min-compatibility-version: %w", err)
	}
	return discovery.Emulation{Level: l, Forward: e.Forward, Explicit: e.Explicit}, nil
}

// Audit says what of requests is told, and to whom.
type Audit = audit.Options

// AdmissionPlugins are the names of the plugins that are on, and off, by default.
func AdmissionPlugins() (on, off []string) { return plugins.Defaults() }

// Controllers are the names that --controllers takes.
func Controllers() []string { return controllers.Names() }

// leastMemory is the smallest limit that a server can work within.
const leastMemory = 80 << 20

func (a *API) check() error {
	for _, n := range []struct {
		flag  string
		value int64
	}{
		{"request-timeout", int64(a.RequestTimeout)}, {"max-requests-inflight", int64(a.MaxReads)},
		{"max-mutating-requests-inflight", int64(a.MaxWrites)}, {"encoded-cache-bytes", a.EncodedCacheSize},
		{"event-ttl", int64(a.EventTTL)},
	} {
		if n.value < 0 {
			return fmt.Errorf("--%s must not be negative", n.flag)
		}
	}
	if err := discovery.CheckSwitches(a.RuntimeConfig, api.All()); err != nil {
		return fmt.Errorf("--runtime-config: %w", err)
	}
	e, err := a.Emulation.settled()
	if err != nil {
		return err
	}
	if err := e.Check(a.RuntimeConfig, api.All()); err != nil {
		return err
	}
	if err := a.Features.CheckAt(e.Level); err != nil {
		return fmt.Errorf("--feature-gates: %w", err)
	}
	if a.MemoryLimit < 0 || a.MemoryLimit > 0 && a.MemoryLimit < leastMemory {
		return fmt.Errorf("--memory-limit must be %d MiB at least: a server without any objects needs half of that", leastMemory>>20)
	}
	var both []string
	for _, name := range a.Plugins.Enable {
		if slices.Contains(a.Plugins.Disable, name) {
			both = append(both, name)
		}
	}
	if len(both) > 0 {
		return fmt.Errorf("--enable-admission-plugins and --disable-admission-plugins both have %s", strings.Join(both, ", "))
	}
	if err := a.Serving.Check(); err != nil {
		return err
	}
	if err := a.Audit.Check(); err != nil {
		return err
	}
	if err := a.Authorization.Check(); err != nil {
		return err
	}
	if err := a.Encryption.check(); err != nil {
		return err
	}
	if a.TracingFile != "" {
		if a.tracing, err = tracing.Read(a.TracingFile); err != nil {
			return fmt.Errorf("--tracing-config-file: %w", err)
		}
	}
	if a.PluginConfigFile == "" {
		return nil
	}
	if a.Plugins.Config, err = admission.ReadConfigurations(a.PluginConfigFile); err != nil {
		return fmt.Errorf("--admission-control-config-file: %w", err)
	}
	return nil
}

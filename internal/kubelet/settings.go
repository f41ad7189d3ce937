package kubelet

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/kubelet/admit"
	"github.com/kemudi/kemudi/internal/kubelet/backoff"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/manifest"
	"github.com/kemudi/kemudi/internal/kubelet/node"
	"github.com/kemudi/kemudi/internal/kubelet/relay"
	"github.com/kemudi/kemudi/internal/kubelet/server"
	"github.com/kemudi/kemudi/internal/kubelet/shutdown"
)

// Settings are what people tune of an agent, each by the flag that is named, whose help says what
// it is. The zero value has the defaults.
type Settings struct {
	MaxPods     int // --max-pods
	PodsPerCore int // --pods-per-core; 0: as many as MaxPods says

	KubeReserved   Reserved // --kube-reserved
	SystemReserved Reserved // --system-reserved

	// Enforce says by which cgroups all that is held to (--enforce-node-allocatable); default pods. None is
	// said by that word. The cgroups of others are --kube-reserved-cgroup and --system-reserved-cgroup.
	Enforce                  []string
	KubeCgroup, SystemCgroup string

	ManifestDir string      // --pod-manifest-path; empty: no static pods
	ManifestURL ManifestURL // of others

	UnsafeSysctls []string // --allowed-unsafe-sysctls

	LogMaxSize  resource.QuantityValue // --container-log-max-size
	LogMaxFiles int                    // --container-log-max-files

	Serve server.Settings

	Containers Containers
	Pinning    Pinning

	Eviction   evict.Thresholds // --eviction-hard; default evict.Default
	Soft       evict.Soft       // --eviction-soft, --eviction-soft-grace-period, --eviction-max-pod-grace-period
	MinReclaim evict.Amounts    // --eviction-minimum-reclaim
	Transition time.Duration    // --eviction-pressure-transition-period
	Shutdown   shutdown.Settings
	// StatusPeriod is how often the node's status is written although nothing has changed
	// (--node-status-update-frequency of a kubelet); default [node.ReportInterval].
	StatusPeriod time.Duration
	// External says that a cloud knows what the node is (--cloud-provider): it registers with
	// the taint that keeps pods off until a loop of the cloud has told it, and names no addresses
	// but SaidIPs, which people have said (--node-ip).
	External bool
	SaidIPs  []string
	// ProviderID is who the node is in its cloud (--provider-id); empty: the cloud says it.
	ProviderID string
	// MostImages is how many images the node's status lists (--node-status-max-images); negative: all.
	MostImages int
}

// ManifestURL is where manifests of static pods are published.
type ManifestURL struct {
	Address string          // --manifest-url; empty: nowhere
	Header  manifest.Header // --manifest-url-header: what is sent with each question
}

// Containers are settings of what the kernel holds containers to.
type Containers struct {
	// Processes is how many processes and threads a pod may have (--pod-max-pids); not more than 0: as many as all.
	Processes int64
	// SeccompDefault gives the runtime's seccomp profile to containers that ask for none (--seccomp-default).
	SeccompDefault bool
	NoCPULimits    bool          // --cpu-cfs-quota=false
	CPUPeriod      time.Duration // --cpu-cfs-quota-period; default 100 ms
	// OneProcess leaves the others of a container alone when the kernel ends one for want of memory
	// (--single-process-oom-kill). Under version 1 of cgroups that is always so.
	OneProcess bool
	// Swap says whether containers may swap (--memory-swap-behavior): [NoSwap], which is the default, or [LimitedSwap].
	// Under version 1 of cgroups they swap as they like.
	Swap   string
	Memory Memory
	// RestartWait is how long a container that exits again and again waits at the most (--max-container-restart-period).
	RestartWait time.Duration
	// Sysctls are kernel parameters of all pods, as far as a pod has them for itself and says nothing else
	// (--default-pod-sysctls).
	Sysctls map[string]string
}

// Memory says what the kernel does for the memory of pods beside holding them to their limits.
type Memory struct {
	// Throttle is how far a container may go from its request to its limit before it is slowed down
	// (--memory-throttling-factor); 0: as far as it likes.
	Throttle float64
	// Policy is whether requests are kept for pods (--memory-reservation-policy): [NoReservation], which is the default, or
	// [TieredReservation].
	Policy string
	// Reserved is how much of requests those of lower classes cannot use (--qos-reserved): memory=50%.
	Reserved map[string]string
}

// Whether requests of memory are kept for pods, in upstream's words.
const (
	NoReservation     = "None"
	TieredReservation = "TieredReservation"
)

// reserved is the part in percent; 0: none.
func (m *Memory) reserved() (percent int64, err error) {
	for name, text := range m.Reserved {
		if name != string(v1.ResourceMemory) {
			return 0, fmt.Errorf("qos-reserved: cannot reserve %q resource: want memory", name)
		}
		digits, ok := strings.CutSuffix(text, "%")
		if percent, err = strconv.ParseInt(digits, 10, 64); !ok || err != nil || percent < 0 || percent > 100 {
			return 0, fmt.Errorf("qos-reserved: %s=%s: want a percentage from 0%% to 100%%", name, text)
		}
	}
	return percent, nil
}

func (m *Memory) check() error {
	switch {
	case m.Throttle < 0 || m.Throttle > 1:
		return fmt.Errorf("memory-throttling-factor: %v must be greater than 0 and less than or equal to 1.0", m.Throttle)
	case m.Policy != "" && m.Policy != NoReservation && m.Policy != TieredReservation:
		return fmt.Errorf("memory-reservation-policy: %s: want %s or %s", m.Policy, NoReservation, TieredReservation)
	}
	_, err := m.reserved()
	return err
}

// qos is what it comes to for pods; it is checked.
func (m *Memory) qos() cri.MemoryQoS {
	percent, _ := m.reserved()
	return cri.MemoryQoS{Throttle: m.Throttle, Tiered: m.Policy == TieredReservation, Reserved: percent}
}

// Whether containers may swap, in upstream's words.
const (
	NoSwap      = "NoSwap"
	LimitedSwap = "LimitedSwap"
)

// DefaultSettings are those of an agent that is given none. Eviction stays nil, which says the same.
func DefaultSettings() Settings {
	return Settings{
		MaxPods: 110, LogMaxFiles: 5, Transition: 5 * time.Minute, StatusPeriod: node.ReportInterval,
		MostImages: node.MostImages, Pinning: Pinning{}.withDefaults(), Containers: Containers{Processes: -1, CPUPeriod: cri.CPUPeriod, RestartWait: backoff.Restart.Most, Swap: NoSwap},
		Serve: server.Settings{StreamIdle: relay.StreamIdle}, Soft: evict.Soft{Thresholds: evict.Thresholds{}},
		Enforce: []string{enforcePods}, LogMaxSize: resource.QuantityValue{Quantity: *resource.NewQuantity(10<<20, resource.BinarySI)},
	}
}

func (s Settings) withDefaults() (Settings, error) {
	d := DefaultSettings()
	if s.MaxPods == 0 {
		s.MaxPods = d.MaxPods
	}
	if s.LogMaxSize.IsZero() {
		s.LogMaxSize = d.LogMaxSize
	}
	if s.LogMaxFiles == 0 {
		s.LogMaxFiles = d.LogMaxFiles
	}
	if len(s.Enforce) == 0 {
		s.Enforce = d.Enforce
	}
	if s.Eviction == nil {
		if err := s.Eviction.Set(evict.Default); err != nil {
			return s, err
		}
	}
	if s.Transition == 0 {
		s.Transition = d.Transition
	}
	if s.StatusPeriod == 0 {
		s.StatusPeriod = d.StatusPeriod
	}
	if s.MostImages == 0 {
		s.MostImages = d.MostImages
	}
	if s.Serve.StreamIdle == 0 {
		s.Serve.StreamIdle = d.Serve.StreamIdle
	}
	s.Containers, s.Pinning = s.Containers.withDefaults(d.Containers), s.Pinning.withDefaults()
	return s, errors.Join(s.check(), s.reserveCPUs())
}

func (c Containers) withDefaults(d Containers) Containers {
	if c.Processes == 0 {
		c.Processes = d.Processes
	}
	if c.CPUPeriod == 0 {
		c.CPUPeriod = d.CPUPeriod
	}
	if c.RestartWait == 0 {
		c.RestartWait = d.RestartWait
	}
	if c.Swap == "" {
		c.Swap = d.Swap
	}
	return c
}

func (c *Containers) check() error {
	if err := c.Memory.check(); err != nil {
		return err
	}
	switch {
	case c.Swap != NoSwap && c.Swap != LimitedSwap:
		return fmt.Errorf("memory-swap-behavior: %q: want NoSwap or LimitedSwap", c.Swap)
	case c.CPUPeriod < time.Millisecond || c.CPUPeriod > time.Second:
		return errors.New("cpu-cfs-quota-period: must be between 1ms and 1s, inclusive")
	case c.RestartWait < time.Second || c.RestartWait > backoff.Restart.Most:
		return errors.New("max-container-restart-period: must be between 1s and 5m0s, inclusive")
	}
	if err := admit.CheckOwn(c.Sysctls); err != nil {
		return fmt.Errorf("default-pod-sysctls: %w", err)
	}
	return nil
}

func (s *Settings) check() error {
	switch {
	case s.PodsPerCore < 0:
		return fmt.Errorf("pods-per-core: %d must not be a negative number", s.PodsPerCore)
	case s.MaxPods < 0:
		return errors.New("max-pods: must not be negative")
	case s.ManifestDir != "" && !filepath.IsAbs(s.ManifestDir):
		return errors.New("pod-manifest-path: must be an absolute path")
	case s.ManifestURL.Address == "" && len(s.ManifestURL.Header) > 0:
		return errors.New("manifest-url-header: goes with manifest-url, which is missing")
	case s.Serve.StreamIdle < 0:
		return errors.New("streaming-connection-idle-timeout: must not be negative")
	case s.LogMaxSize.Sign() < 0:
		return errors.New("container-log-max-size: must be positive")
	case s.LogMaxFiles < 2:
		return errors.New("container-log-max-files: must be 2 or more")
	case s.StatusPeriod < 0:
		return errors.New("node-status-update-frequency: must be positive")
	case s.Soft.MaxPodGrace < 0:
		return errors.New("eviction-max-pod-grace-period: must not be negative")
	case s.Transition < 0:
		return errors.New("eviction-pressure-transition-period: must not be negative")
	}
	if _, err := admit.NewSysctls("", s.UnsafeSysctls); err != nil {
		return fmt.Errorf("allowed-unsafe-sysctls: %w", err)
	}
	if err := s.Containers.check(); err != nil {
		return err
	}
	if err := s.Pinning.check(); err != nil {
		return err
	}
	if err := s.Shutdown.Check(); err != nil {
		return err
	}
	if _, err := s.Soft.With(nil); err != nil {
		return fmt.Errorf("eviction-soft-grace-period: %w", err)
	}
	return s.checkEnforcement()
}

package kubelet

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/kubelet/admit"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/node"
)

// Settings are what people tune of an agent, each by the flag that is named, whose help says what
// it is. The zero value has the defaults.
type Settings struct {
	MaxPods int // --max-pods

	KubeReserved   Reserved // --kube-reserved
	SystemReserved Reserved // --system-reserved

	// Enforce says by which cgroups all that is held to (--enforce-node-allocatable); default pods. None is
	// said by that word. The cgroups of others are --kube-reserved-cgroup and --system-reserved-cgroup.
	Enforce                  []string
	KubeCgroup, SystemCgroup string

	ManifestDir string // --pod-manifest-path; empty: no static pods

	UnsafeSysctls []string // --allowed-unsafe-sysctls

	LogMaxSize  resource.QuantityValue // --container-log-max-size
	LogMaxFiles int                    // --container-log-max-files

	NoSystemLogs bool // --enable-system-log-handler=false

	Eviction   evict.Thresholds // --eviction-hard; default evict.Default
	Transition time.Duration    // --eviction-pressure-transition-period
	// StatusPeriod is how often the node's status is written although nothing has changed
	// (--node-status-update-frequency of a kubelet); default [node.ReportInterval].
	StatusPeriod time.Duration
	// External says that a cloud knows what the node is (--cloud-provider): it registers with
	// the taint that keeps pods off until a loop of the cloud has told it, and names no addresses
	// but SaidIPs, which people have said (--node-ip).
	External bool
	SaidIPs  []string
}

// DefaultSettings are those of an agent that is given none. Eviction stays nil, which says the same.
func DefaultSettings() Settings {
	return Settings{
		MaxPods: 110, LogMaxFiles: 5, Transition: 5 * time.Minute, StatusPeriod: node.ReportInterval,
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
	return s, s.check()
}

func (s *Settings) check() error {
	switch {
	case s.MaxPods < 0:
		return errors.New("max-pods: must not be negative")
	case s.ManifestDir != "" && !filepath.IsAbs(s.ManifestDir):
		return errors.New("pod-manifest-path: must be an absolute path")
	case s.LogMaxSize.Sign() < 0:
		return errors.New("container-log-max-size: must be positive")
	case s.LogMaxFiles < 2:
		return errors.New("container-log-max-files: must be 2 or more")
	case s.StatusPeriod < 0:
		return errors.New("node-status-update-frequency: must be positive")
	case s.Transition < 0:
		return errors.New("eviction-pressure-transition-period: must not be negative")
	}
	if _, err := admit.NewSysctls("", s.UnsafeSysctls); err != nil {
		return fmt.Errorf("allowed-unsafe-sysctls: %w", err)
	}
	return s.checkEnforcement()
}

package kubelet

import (
	"errors"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kemudi/kemudi/internal/kubelet/evict"
)

// Settings are what people tune of an agent, each by a flag. The zero value has
// the defaults.
type Settings struct {
	MaxPods int // --max-pods: how many pods fit; default 110

	ManifestDir string // --pod-manifest-path: directory of the manifests of static pods; empty: none

	LogMaxSize  resource.QuantityValue // --container-log-max-size: how large a log grows before a new one is begun; default 10Mi
	LogMaxFiles int                    // --container-log-max-files: how many files a container's log has at the most; default 5

	Eviction   evict.Thresholds // --eviction-hard: how little may be left before pods are evicted; default evict.Default
	Transition time.Duration    // --eviction-pressure-transition-period: how long a condition outlasts its cause; default 5 min
}

const (
	defaultMaxPods    = 110
	defaultLogSize    = 10 << 20
	defaultLogFiles   = 5
	defaultTransition = 5 * time.Minute
)

func (s Settings) withDefaults() (Settings, error) {
	if s.MaxPods == 0 {
		s.MaxPods = defaultMaxPods
	}
	if s.LogMaxSize.IsZero() {
		s.LogMaxSize.Quantity = *resource.NewQuantity(defaultLogSize, resource.BinarySI)
	}
	if s.LogMaxFiles == 0 {
		s.LogMaxFiles = defaultLogFiles
	}
	if s.Eviction == nil {
		if err := s.Eviction.Set(evict.Default); err != nil {
			return s, err
		}
	}
	if s.Transition == 0 {
		s.Transition = defaultTransition
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
	case s.Transition < 0:
		return errors.New("eviction-pressure-transition-period: must not be negative")
	}
	return nil
}

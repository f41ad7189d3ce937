package imagepolicy

import (
	"errors"
	"fmt"
	"time"
)

// configuration is what the plugin is told, as upstream has it: without a version, and times as
// numbers.
type configuration struct {
	ImagePolicy *settings `json:"imagePolicy"`
}

// settings say who is asked, and what else holds. A time of 0 is the default, and -1 is none.
type settings struct {
	KubeConfigFile string `json:"kubeConfigFile"`
	AllowTTL       int64  `json:"allowTTL"`     // seconds that what is allowed is remembered
	DenyTTL        int64  `json:"denyTTL"`      // seconds that the rest is
	RetryBackoff   int64  `json:"retryBackoff"` // milliseconds before it is asked again
	DefaultAllow   bool   `json:"defaultAllow"` // what a webhook that fails means
}

// span is what a time may be.
type span struct {
	field           string
	unit            time.Duration
	least, most, by time.Duration // by: by default
}

var (
	allowed = span{"imagePolicy.allowTTL", time.Second, time.Second, 30 * time.Minute, 5 * time.Minute}
	denied  = span{"imagePolicy.denyTTL", time.Second, time.Second, 30 * time.Minute, 30 * time.Second}
	backoff = span{"imagePolicy.retryBackoff", time.Millisecond, 1, 5 * time.Minute, 500 * time.Millisecond}
)

// of is the time that a number means; 0: none.
func (s *span) of(n int64) (time.Duration, error) {
	switch n {
	case -1:
		return 0, nil
	case 0:
		return s.by, nil
	}
	if n < 0 || n > int64(s.most/s.unit) || time.Duration(n)*s.unit <= s.least {
		return 0, fmt.Errorf("%s: valid value is between %v and %v, got %d of %v", s.field, s.least, s.most, n, s.unit)
	}
	return time.Duration(n) * s.unit, nil
}

// times are those of the settings.
func (s *settings) times() (allow, deny, retry time.Duration, err error) {
	if allow, err = allowed.of(s.AllowTTL); err != nil {
		return 0, 0, 0, err
	}
	if deny, err = denied.of(s.DenyTTL); err != nil {
		return 0, 0, 0, err
	}
	retry, err = backoff.of(s.RetryBackoff)
	return allow, deny, retry, err
}

var errNoConfiguration = errors.New("imagePolicy.kubeConfigFile: is required: the kubeconfig of the server that is asked; --admission-control-config-file has it")

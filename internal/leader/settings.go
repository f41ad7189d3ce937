package leader

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Settings say how leaders are elected, each field by its flag. The zero value has the
// defaults.
type Settings struct {
	Off           bool          // --leader-elect=false: every control plane acts as if it were alone
	LeaseDuration time.Duration // --leader-elect-lease-duration, in whole seconds
	RenewDeadline time.Duration // --leader-elect-renew-deadline
	RetryPeriod   time.Duration // --leader-elect-retry-period
	Lock          string        // --leader-elect-resource-lock: leases, all that there is
	Namespace     string        // --leader-elect-resource-namespace
	// Names are the leases of controllers and scheduler (--leader-elect-resource-name): two, or one
	// that both go by.
	Names []string
}

// Defaults are the settings of who is given none.
func Defaults() Settings { return Settings{}.WithDefaults() }

// WithDefaults fills in what is not set.
func (s Settings) WithDefaults() Settings {
	s.LeaseDuration = cmp.Or(s.LeaseDuration, 15*time.Second)
	s.RenewDeadline = cmp.Or(s.RenewDeadline, 10*time.Second)
	s.RetryPeriod = cmp.Or(s.RetryPeriod, 2*time.Second)
	s.Lock = cmp.Or(s.Lock, "leases")
	s.Namespace = cmp.Or(s.Namespace, metav1.NamespaceSystem)
	if len(s.Names) == 0 {
		s.Names = []string{"kube-controller-manager", "kube-scheduler"}
	}
	return s
}

// jitter is by how much retries may be late, as upstream has it.
const jitter = 1.2

// Late is when the retry after a period may come at the latest.
func Late(period time.Duration) time.Duration { return time.Duration(jitter * float64(period)) }

// Check says what is wrong with the settings.
func (s Settings) Check() error {
	s = s.WithDefaults()
	switch {
	case s.Off:
	case s.Lock != "leases":
		return fmt.Errorf("--leader-elect-resource-lock %q: leaders are elected by leases alone", s.Lock)
	case len(s.Names) > 2:
		return fmt.Errorf("--leader-elect-resource-name %s: want the names of two leases, of the controllers and of the scheduler, or one for both", strings.Join(s.Names, ","))
	case s.LeaseDuration < time.Second || s.LeaseDuration%time.Second != 0:
		return fmt.Errorf("--leader-elect-lease-duration %s: want whole seconds, at least one", s.LeaseDuration)
	case s.RenewDeadline <= 0 || s.RetryPeriod <= 0:
		return errors.New("--leader-elect-renew-deadline and --leader-elect-retry-period must be greater than zero")
	case s.LeaseDuration <= s.RenewDeadline:
		return fmt.Errorf("--leader-elect-lease-duration %s must be greater than --leader-elect-renew-deadline %s", s.LeaseDuration, s.RenewDeadline)
	case s.RenewDeadline <= Late(s.RetryPeriod):
		return fmt.Errorf("--leader-elect-renew-deadline %s must be greater than %.1f times --leader-elect-retry-period %s", s.RenewDeadline, jitter, s.RetryPeriod)
	}
	return nil
}

// SameTimes says that both elect in the same time.
func (s Settings) SameTimes(other Settings) bool {
	return s.LeaseDuration == other.LeaseDuration && s.RenewDeadline == other.RenewDeadline && s.RetryPeriod == other.RetryPeriod
}

// Over are the settings of a file, with those that flags say in their place: those that differ from
// their defaults. name is the lease that the file is about, as for [Settings.Lease].
func (s Settings) Over(file Settings, name int) Settings {
	s, d := s.WithDefaults(), Defaults()
	over(&file.LeaseDuration, s.LeaseDuration, d.LeaseDuration)
	over(&file.RenewDeadline, s.RenewDeadline, d.RenewDeadline)
	over(&file.RetryPeriod, s.RetryPeriod, d.RetryPeriod)
	over(&file.Lock, s.Lock, d.Lock)
	over(&file.Namespace, s.Namespace, d.Namespace)
	over(&file.Off, s.Off, d.Off)
	if s.Lease(name) != d.Lease(name) {
		file.Names = []string{s.Lease(name)}
	}
	return file
}

func over[T comparable](field *T, said, usual T) {
	if said != usual {
		*field = said
	}
}

// Lease is the name of the lease of the controllers (0) or of the scheduler (1).
func (s Settings) Lease(i int) string { return s.Names[min(i, len(s.Names)-1)] }

package leader

import (
	"testing"
	"time"
)

func TestSettingsThatCannotBeAreRefused(t *testing.T) {
	for _, c := range []struct {
		s    Settings
		want string
	}{
		{Settings{}, ""},
		{Settings{Lock: "leases", Names: []string{"one"}}, ""},
		{Settings{Lock: "endpoints"}, `--leader-elect-resource-lock "endpoints": leaders are elected by leases alone`},
		{Settings{Names: []string{"a", "b", "c"}}, "--leader-elect-resource-name a,b,c: want the names of two leases, of the controllers and of the scheduler, or one for both"},
		{Settings{LeaseDuration: 1500 * time.Millisecond}, "--leader-elect-lease-duration 1.5s: want whole seconds, at least one"},
		{Settings{RetryPeriod: -1}, "--leader-elect-renew-deadline and --leader-elect-retry-period must be greater than zero"},
		{Settings{LeaseDuration: 10 * time.Second}, "--leader-elect-lease-duration 10s must be greater than --leader-elect-renew-deadline 10s"},
		{Settings{RetryPeriod: 9 * time.Second}, "--leader-elect-renew-deadline 10s must be greater than 1.2 times --leader-elect-retry-period 9s"},
	} {
		got := ""
		if err := c.s.Check(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: got %q, want %q", c.s, got, c.want)
		}
	}
	s := Settings{Names: []string{"one"}}
	if s.Lease(0) != "one" || s.Lease(1) != "one" || Defaults().Lease(0) != "kube-controller-manager" || Defaults().Lease(1) != "kube-scheduler" {
		t.Errorf("got leases %s, %s and %s, %s", s.Lease(0), s.Lease(1), Defaults().Lease(0), Defaults().Lease(1))
	}
}

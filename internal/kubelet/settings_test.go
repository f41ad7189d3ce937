package kubelet

import "testing"

func TestSettingsThatCannotBeAreRefusedByTheirFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set  func(*Settings)
		want string
	}{
		{func(*Settings) {}, ""},
		{func(s *Settings) {
			s.Containers.Memory = Memory{Throttle: 0.9, Policy: TieredReservation, Reserved: map[string]string{"memory": "50%"}}
		}, ""},
		{func(s *Settings) { s.Containers.Memory.Policy = "All" }, "memory-reservation-policy: All: want None or TieredReservation"},
		{func(s *Settings) { s.Containers.Memory.Throttle = 1.5 }, "memory-throttling-factor: 1.5 must be greater than 0 and less than or equal to 1.0"},
		{func(s *Settings) { s.Containers.Memory.Reserved = map[string]string{"cpu": "50%"} }, `qos-reserved: cannot reserve "cpu" resource: want memory`},
		{func(s *Settings) { s.Containers.Memory.Reserved = map[string]string{"memory": "50"} }, "qos-reserved: memory=50: want a percentage from 0% to 100%"},
		{func(s *Settings) { s.ManifestURL.Header = map[string][]string{"a": {"b"}} }, "manifest-url-header: goes with manifest-url, which is missing"},
	} {
		s := DefaultSettings()
		c.set(&s)
		got := ""
		if _, err := s.withDefaults(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	m := Memory{Throttle: 0.9, Policy: TieredReservation, Reserved: map[string]string{"memory": "50%"}}
	if got := m.qos(); got.Throttle != 0.9 || !got.Tiered || got.Reserved != 50 {
		t.Errorf("got %+v", got)
	}
}

package dra

import resourcev1 "k8s.io/api/resource/v1"

// Tolerates reports whether a toleration is about a taint. For how long it tolerates the
// taint, if that evicts, it says itself.
func Tolerates(by *resourcev1.DeviceToleration, t *resourcev1.DeviceTaint) bool {
	if by.Effect != "" && by.Effect != t.Effect || by.Key != "" && by.Key != t.Key {
		return false
	}
	switch by.Operator {
	case resourcev1.DeviceTolerationOpExists:
		return true
	case "", resourcev1.DeviceTolerationOpEqual:
		return by.Value == t.Value
	}
	return false
}

// Selects reports whether what a rule selects includes a device: none is selected by no
// selector, all by an empty one.
func Selects(s *resourcev1.DeviceTaintSelector, driver, pool, device string) bool {
	is := func(want *string, have string) bool { return want == nil || *want == have }
	return s != nil && is(s.Driver, driver) && is(s.Pool, pool) && is(s.Device, device)
}

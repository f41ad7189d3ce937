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

package resource

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// NonNegative refuses a number below zero.
func (e *Errors) NonNegative(path string, value int64) {
	if value < 0 {
		e.Invalid(path, value, "must be greater than or equal to 0")
	}
}

// AtMost refuses a count that is greater than one that it is a part of.
func (e *Errors) AtMost(path string, part int32, wholePath string, whole int32) {
	if part > whole {
		e.Invalid(path, part, "cannot be greater than "+wholePath)
	}
}

// Refuse adds one error for every message that a name or format rule returned.
func (e *Errors) Refuse(path string, value any, messages []string) {
	for _, m := range messages {
		e.Invalid(path, value, m)
	}
}

// IntOrPercent refuses what is neither a number from zero up nor a percentage.
func (e *Errors) IntOrPercent(path string, value intstr.IntOrString) {
	if value.Type == intstr.String {
		e.Refuse(path, value, validation.IsValidPercent(value.StrVal))
		return
	}
	e.NonNegative(path, int64(value.IntVal))
}

// AtMost100Percent refuses a percentage above 100; plain numbers pass.
func (e *Errors) AtMost100Percent(path string, value intstr.IntOrString) {
	if value.Type == intstr.String && IntOrPercentValue(value) > 100 {
		e.Invalid(path, value, "must not be greater than 100%")
	}
}

// IntOrPercentValue is the number in "25%" or 25, and 0 if there is none.
func IntOrPercentValue(value intstr.IntOrString) int {
	if value.Type == intstr.Int {
		return int(value.IntVal)
	}
	n, err := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%"))
	if err != nil {
		return 0
	}
	return n
}

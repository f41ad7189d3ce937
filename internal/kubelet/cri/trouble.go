package cri

import (
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Trouble says what a runtime lacks to run pods, in upstream's words; empty: nothing. With network it is only what connects
// pods: those that use the machine's network run nevertheless.
func Trouble(s *runtimeapi.RuntimeStatus) (message string, network bool) {
	for _, c := range s.GetConditions() {
		switch {
		case c.Status:
		case c.Type == runtimeapi.NetworkReady:
			return fmt.Sprintf("container runtime network not ready: %s=%v reason:%s message:%s", c.Type, c.Status, c.Reason, c.Message), true
		case c.Type == runtimeapi.RuntimeReady:
			return fmt.Sprintf("container runtime not ready: %s=%v reason:%s message:%s", c.Type, c.Status, c.Reason, c.Message), false
		}
	}
	return "", false
}

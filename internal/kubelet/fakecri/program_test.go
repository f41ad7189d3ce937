package fakecri

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestDefaultProgramUnderstandsCommands(t *testing.T) {
	forever := Program{}
	ends := func(after time.Duration, code int32) Program {
		return Program{Ends: true, After: after, ExitCode: code}
	}
	for _, tc := range []struct {
		command []string
		want    Program
	}{
		{nil, forever},
		{[]string{"nginx", "-g", "daemon off;"}, forever},
		{[]string{"true"}, ends(0, 0)},
		{[]string{"false"}, ends(0, 1)},
		{[]string{"sleep", "1.5"}, ends(1500*time.Millisecond, 0)},
		{[]string{"sleep", "infinity"}, forever},
		{[]string{"/bin/sh", "-c", "echo hi && sleep 5; exit 3"}, ends(5*time.Second, 3)},
		{[]string{"sh", "-c", "while true; do sleep 1; done"}, forever},
	} {
		if got := DefaultProgram(&runtimeapi.ContainerConfig{Command: tc.command}); got != tc.want {
			t.Errorf("%q: got %+v, want %+v", tc.command, got, tc.want)
		}
	}
}

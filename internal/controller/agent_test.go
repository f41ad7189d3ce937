package controller

import (
	"strings"
	"testing"
)

func TestControllersThatUpstreamHasWriteAsItsProgram(t *testing.T) {
	got := Agent("deployment-controller")
	if !strings.HasPrefix(got, "kube-controller-manager/v1.") || !strings.HasSuffix(got, "/system:serviceaccount:kube-system:deployment-controller") {
		t.Errorf("got %q, want the program before the first slash and the account at the end", got)
	}
	if got := Agent("ingress-status-controller"); got != "ingress-status-controller" {
		t.Errorf("got %q of a controller that is ours alone, want its name", got)
	}
}

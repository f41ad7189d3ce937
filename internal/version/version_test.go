package version

import (
	"os"
	"regexp"
	"strings"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

func TestClientsParseTheVersionAsKubernetes(t *testing.T) {
	for _, own := range []string{"0.0.0-dev", "0.3.0", "v0.3.0-12-gabcdef0-dirty", "0.3.0+local/x y"} {
		old := Version
		Version = own
		info := Info()
		Version = old
		v, err := utilversion.ParseSemantic(info.GitVersion)
		if err != nil {
			t.Errorf("version %q: git version %q: %v", own, info.GitVersion, err)
			continue
		}
		if v.Major() != 1 || v.Minor() != 37 || info.Major != "1" || info.Minor != "37" {
			t.Errorf("version %q: got %d.%d, Major %q, Minor %q, want 1.37", own, v.Major(), v.Minor(), info.Major, info.Minor)
		}
		if !strings.Contains(info.GitVersion, "+kemudi.0.") {
			t.Errorf("version %q: git version %q does not name Kemudi's own version", own, info.GitVersion)
		}
	}
}

func TestNodeAgentsAloneAreToldFromThoseWithAWholeNode(t *testing.T) {
	for git, want := range map[string]bool{Git(): true, "v1.36.4+kemudi.0.3.0": true, Alone(): false, "v1.37.2": false} {
		if _, err := utilversion.ParseSemantic(git); err != nil || Ours(git) != want {
			t.Errorf("%s: got %v, %v, want %v", git, Ours(git), err, want)
		}
	}
}

func TestKubernetesVersionIsThatOfTheAPITypes(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`k8s\.io/api v0\.(\S+)`).FindSubmatch(mod)
	if m == nil {
		t.Fatal("go.mod requires no k8s.io/api v0")
	}
	if got, want := Kubernetes, "1."+string(m[1]); got != want {
		t.Errorf("Kubernetes: got %s, want %s as in go.mod", got, want)
	}
}

func TestUserAgentNamesComponentAndVersion(t *testing.T) {
	if got := UserAgent("kubelet"); !strings.HasPrefix(got, "kubelet/v1.37.") || !strings.HasSuffix(got, ")") {
		t.Errorf("user agent: got %q", got)
	}
}

func TestMinorVersionIsRead(t *testing.T) {
	if minor, err := Minor("v1.36.4+kemudi.0.3.0"); err != nil || minor != 36 {
		t.Errorf("got %d, %v", minor, err)
	}
	for _, text := range []string{"", "v1", "1.36", "v1.x.0"} {
		if minor, err := Minor(text); err == nil {
			t.Errorf("%q: got %d", text, minor)
		}
	}
}

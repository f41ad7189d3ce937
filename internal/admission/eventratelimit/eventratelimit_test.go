package eventratelimit

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
)

func made(t *testing.T, config string) (admission.Plugin, error) {
	o := admissiontest.New(t).Options()
	o.Config = admission.Configurations{"EventRateLimit": []byte("apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n" + config)}
	return New(o)
}

func TestEventsBeyondALimitAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for limit, key := range map[string]string{"Server": "", "Namespace": "team", "User": "alice", "SourceAndObject": "kubeletn1Podteamxu1v1"} {
			p, err := made(t, "limits: [{type: "+limit+", qps: 1, burst: 2}]")
			if err != nil {
				t.Fatal(err)
			}
			c := admission.NewChain(p)
			send := func(namespace, who, object string) string {
				a := admissiontest.Request(t, fmt.Sprintf("Event: {metadata: {namespace: %s, name: e}, source: {component: kubelet, host: n1}, involvedObject: {apiVersion: v1, kind: Pod, namespace: team, name: %s, uid: u1}}", namespace, object), "")
				a.User = &user.DefaultInfo{Name: who}
				return admissiontest.Run(t, c, a)
			}
			want := "Too many requests: limit reached on type " + limit + " for key " + key
			for i, want := range []string{"", "", want} {
				if got := send("team", "alice", "x"); got != want {
					t.Errorf("%s, event %d: got %q, want %q", limit, i, got, want)
				}
			}
			if got := send("other", "bob", "y"); (got == "") != (limit != "Server") {
				t.Errorf("%s, another key: got %q", limit, got)
			}
			a := admissiontest.Request(t, "ConfigMap: {metadata: {namespace: team, name: x}}", "")
			if got := admissiontest.Run(t, c, a); got != "" {
				t.Errorf("%s, another kind: got %q", limit, got)
			}
			time.Sleep(time.Second)
			if got := send("team", "alice", "x"); got != "" {
				t.Errorf("%s, a second later: got %q", limit, got)
			}
		}
	})
}

func TestLimitsThatCannotBeAreRefused(t *testing.T) {
	for config, want := range map[string]string{
		"limits: []": "limits: Required value: there must be at least one",
		"limits: [{type: Cluster, qps: 1, burst: 1}]":       `limits[0].type: Unsupported value: "Cluster": supported values: "Namespace", "Server", "SourceAndObject", "User"`,
		"limits: [{type: User, burst: -1, cacheSize: -2}]":  `[limits[0].qps: Invalid value: 0: must be positive, limits[0].burst: Invalid value: -1: must be positive, limits[0].cacheSize: Invalid value: -2: must not be negative]`,
		"limits: [{type: User, qps: 1, burst: 1, size: 2}]": "unknown field",
	} {
		if _, err := made(t, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", config, err, want)
		}
	}
}

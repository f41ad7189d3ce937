package podsecurity

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
	"github.com/kemudi/kemudi/internal/audit/audittest"
)

// namespace is one with labels of the plugin: "enforce: baseline, warn: restricted".
func namespace(name, labels string) string {
	if labels != "" {
		labels = "pod-security.kubernetes.io/" + strings.ReplaceAll(labels, ", ", ", pod-security.kubernetes.io/")
	}
	return "Namespace: {metadata: {name: " + name + ", labels: {" + labels + "}}}"
}

const (
	bare = "Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a, image: i}]}}"
	host = "Pod: {metadata: {namespace: team, name: x}, spec: {hostNetwork: true, containers: [{name: a, image: i, securityContext: {privileged: true}}]}}"
	good = `Pod: {metadata: {namespace: team, name: x}, spec: {securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}},
		containers: [{name: a, image: i, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}`

	restricted = `allowPrivilegeEscalation != false (container "a" must set securityContext.allowPrivilegeEscalation=false), ` +
		`unrestricted capabilities (container "a" must set securityContext.capabilities.drop=["ALL"]), ` +
		`runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true), ` +
		`seccompProfile (pod or container "a" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")`
	forbidden = `pods "x" is forbidden: violates PodSecurity `
)

// chain is the plugin with a configuration, in a world with the namespaces.
func chain(t *testing.T, config string, objs ...string) *admission.Chain {
	t.Helper()
	o := admissiontest.New(t, objs...).Options()
	if config != "" {
		o.Config = admission.Configurations{"PodSecurity": []byte("apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n" + config)}
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return admission.NewChain(p)
}

// ask runs a write of somebody through the chain, and returns the warnings as well.
func ask(t *testing.T, c *admission.Chain, a *admission.Attributes) (refused string, warnings []string) {
	t.Helper()
	a.Warn = func(text string) { warnings = append(warnings, text) }
	return admissiontest.Run(t, c, a), warnings
}

func TestPodsAreHeldAgainstTheLevelsOfTheirNamespace(t *testing.T) {
	for _, q := range []struct{ labels, pod, want, warning string }{
		{"", host, "", ""},
		{"enforce: privileged", host, "", ""},
		{"enforce: baseline", bare, "", ""},
		{"enforce: baseline", host, forbidden + `"baseline:latest": host namespaces (hostNetwork=true), privileged (container "a" must not set securityContext.privileged=true)`, ""},
		{"enforce: restricted", bare, forbidden + `"restricted:latest": ` + restricted, ""},
		{"enforce: restricted", good, "", ""},
		{"enforce: restricted, enforce-version: v1.18", bare, forbidden + `"restricted:v1.18": allowPrivilegeEscalation != false (container "a" must set securityContext.allowPrivilegeEscalation=false), ` +
			`runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true)`, ""},
		{"warn: restricted", bare, "", `would violate PodSecurity "restricted:latest": ` + restricted},
		{"enforce: baseline, warn: restricted", bare, "", `would violate PodSecurity "restricted:latest": ` + restricted},
		{"enforce: restricted, warn: restricted", bare, forbidden + `"restricted:latest": ` + restricted, ""},
		{"audit: restricted", bare, "", ""},
		{"enforce: nonsense", bare, forbidden + `"restricted:latest": ` + restricted, ""},
	} {
		got, warnings := ask(t, chain(t, "", namespace("team", q.labels)), admissiontest.Request(t, q.pod, ""))
		if got != q.want || strings.Join(warnings, "\n") != q.warning {
			t.Errorf("%s:\ngot  %s\nwant %s\ngot warnings %q, want %q", q.labels, got, q.want, warnings, q.warning)
		}
	}
}

func TestAuditIsToldWhatWasEnforcedAndWhatViolates(t *testing.T) {
	const prefix = "pod-security.kubernetes.io/"
	for _, q := range []struct {
		labels, pod, config string
		want                map[string]string
	}{
		{"", host, "", map[string]string{"enforce-policy": "privileged:latest"}},
		{"enforce: baseline, enforce-version: v1.30", bare, "", map[string]string{"enforce-policy": "baseline:v1.30"}},
		{"enforce: restricted", bare, "", map[string]string{"enforce-policy": "restricted:latest"}},
		{"audit: restricted", bare, "", map[string]string{
			"enforce-policy": "privileged:latest", "audit-violations": `would violate PodSecurity "restricted:latest": ` + restricted,
		}},
		{"audit: restricted", "Deployment: {metadata: {namespace: team, name: x}, spec: {template: {spec: {containers: [{name: a, image: i}]}}}}", "", map[string]string{
			"audit-violations": `would violate PodSecurity "restricted:latest": ` + restricted,
		}},
		{"enforce: restricted", bare, "exemptions: {namespaces: [team]}", map[string]string{"exempt": "namespace"}},
		{"enforce: restricted", bare, "exemptions: {usernames: [alice]}", map[string]string{"exempt": "user"}},
		{"enforce: nonsense", good, "", map[string]string{
			"enforce-policy": "restricted:latest", "error": "Failed to parse policy: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"nonsense\": must be one of privileged, baseline, restricted",
		}},
	} {
		a := admissiontest.Request(t, q.pod, "")
		var notes func() map[string]string
		a.Audit, notes = audittest.Request(t)
		ask(t, chain(t, q.config, namespace("team", q.labels)), a)
		got := notes()
		for key, want := range q.want {
			if got[prefix+key] != want {
				t.Errorf("%s %s: got %s: %q, want %q", q.labels, q.config, key, got[prefix+key], want)
			}
		}
		if len(got) != len(q.want) {
			t.Errorf("%s %s: got %v, want %v", q.labels, q.config, got, q.want)
		}
	}
}

func TestTemplatesAreWarnedOfAndNotRefused(t *testing.T) {
	const template = "template: {spec: {containers: [{name: a, image: i}]}}"
	c := chain(t, "", namespace("team", "enforce: restricted"))
	for kind, text := range map[string]string{
		"Deployment": "spec: {" + template + "}", "ReplicaSet": "spec: {" + template + "}", "StatefulSet": "spec: {" + template + "}", "DaemonSet": "spec: {" + template + "}",
		"Job": "spec: {" + template + "}", "ReplicationController": "spec: {" + template + "}", "PodTemplate": template, "CronJob": "spec: {jobTemplate: {spec: {" + template + "}}}",
	} {
		got, warnings := ask(t, c, admissiontest.Request(t, kind+": {metadata: {namespace: team, name: x}, "+text+"}", ""))
		if want := `would violate PodSecurity "restricted:latest": ` + restricted; got != "" || len(warnings) != 1 || warnings[0] != want {
			t.Errorf("%s: got %q, warnings %q, want none and %s", kind, got, warnings, want)
		}
	}
	got, warnings := ask(t, c, admissiontest.Request(t, "ReplicationController: {metadata: {namespace: team, name: x}, spec: {replicas: 0}}", ""))
	if got != "" || len(warnings) > 0 {
		t.Errorf("without a template: got %q, %q", got, warnings)
	}
}

func TestOnlyWritesOfWhatTheStandardsLookAtAreChecked(t *testing.T) {
	c := chain(t, "", namespace("team", "enforce: restricted"))
	other := strings.Replace(bare, "image: i", "image: j", 1)
	debugged := strings.Replace(bare, "containers:", "ephemeralContainers: [{name: d, image: i}], containers:", 1)
	for _, q := range []struct {
		name, now, old, sub string
		refused             bool
	}{
		{"the same again", bare, bare, "", false},
		{"another image", other, bare, "", true},
		{"a container for debugging", debugged, bare, "ephemeralcontainers", true},
		{"its status", other, bare, "status", false},
		{"its deletion", "", bare, "", false},
	} {
		a := admissiontest.Request(t, q.now, q.old)
		a.Sub = q.sub
		if got, _ := ask(t, c, a); (got != "") != q.refused {
			t.Errorf("%s: got %q, want refused: %t", q.name, got, q.refused)
		}
	}
}

func TestConfigurationHasDefaultsAndExemptions(t *testing.T) {
	const config = `defaults: {enforce: baseline, warn: restricted, warn-version: latest}
exemptions: {namespaces: [system], usernames: [root], runtimeClasses: [vm]}`
	c := chain(t, config, namespace("team", ""), namespace("free", "enforce: privileged, warn: privileged"), namespace("system", ""))
	in := func(ns, pod string) *admission.Attributes {
		return admissiontest.Request(t, strings.Replace(pod, "namespace: team", "namespace: "+ns, 1), "")
	}
	root := in("team", host)
	root.User = &user.DefaultInfo{Name: "root"}
	for name, q := range map[string]struct {
		a                *admission.Attributes
		refused, warning bool
	}{
		"the default":                 {in("team", host), true, false},
		"the default for warnings":    {in("team", bare), false, true},
		"labels over the default":     {in("free", host), false, false},
		"a namespace that is exempt":  {in("system", host), false, false},
		"a user who is exempt":        {root, false, false},
		"a runtime class that is so":  {in("team", strings.Replace(host, "spec: {", "spec: {runtimeClassName: vm, ", 1)), false, false},
		"a runtime class that is not": {in("team", strings.Replace(host, "spec: {", "spec: {runtimeClassName: runc, ", 1)), true, false},
	} {
		if got, warnings := ask(t, c, q.a); (got != "") != q.refused || (len(warnings) > 0) != q.warning {
			t.Errorf("%s: got %q and warnings %q, want refused %t, warned %t", name, got, warnings, q.refused, q.warning)
		}
	}
	_, warnings := ask(t, c, admissiontest.Request(t, namespace("system", "enforce: restricted, audit: privileged"), ""))
	if want := []string{`namespace "system" is exempt from Pod Security, and the policy (enforce=restricted:latest) will be ignored`}; !slices.Equal(warnings, want) {
		t.Errorf("labels of an exempt namespace: got %q, want %q", warnings, want)
	}
}

func TestConfigurationThatCannotBeIsRefusedByField(t *testing.T) {
	for config, want := range map[string]string{
		"kind: Pod":                                 "is v1 Pod, want pod-security.admission.config.k8s.io/v1 PodSecurityConfiguration",
		"defaults: {enforce: strict}":               `defaults.enforce: Invalid value: "strict": must be one of privileged, baseline, restricted`,
		"defaults: {warn-version: '1.2'}":           `defaults.warn-version: Invalid value: "1.2": must be "latest" or "v1.x"`,
		"exemptions: {usernames: ['', a, a]}":       `[exemptions.usernames[0]: Invalid value: "": username must not be empty, exemptions.usernames[2]: Duplicate value: "a"]`,
		"exemptions: {namespaces: [A]}":             `exemptions.namespaces[0]: Invalid value: "A": `,
		"exemptions: {runtimeClasses: [vm, 'a b']}": `exemptions.runtimeClasses[1]: Invalid value: "a b": `,
		"exemptions: {groups: [a]}":                 `unknown field "groups"`,
	} {
		head := "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n"
		if config == "kind: Pod" {
			head = "apiVersion: v1\n"
		}
		o := admissiontest.New(t).Options()
		o.Config = admission.Configurations{"PodSecurity": []byte(head + config)}
		if _, err := New(o); err == nil || !strings.HasPrefix(err.Error(), "configuration of admission plugin PodSecurity: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", config, err, want)
		}
	}
}

func TestLabelsOfNamespacesAreChecked(t *testing.T) {
	pods := []string{
		strings.Replace(host, "name: x", "name: one", 1), strings.Replace(host, "name: x", "name: two", 1), strings.Replace(host, "name: x", "name: three", 1),
		strings.Replace(strings.Replace(host, "name: x", "name: net", 1), "hostNetwork: true", "hostPID: true", 1),
		strings.Replace(bare, "name: x", "name: fine", 1),
	}
	c := chain(t, "", pods...)
	const invalid = `Namespace "team" is invalid: metadata.labels[pod-security.kubernetes.io/`
	plain := namespace("team", "")
	for _, q := range []struct{ name, now, old, want, warnings string }{
		{"no labels", plain, "", "", ""},
		{"good labels", namespace("team", "enforce: baseline, enforce-version: v1.30"), "", "", ""},
		{"an unknown level", namespace("team", "enforce: strict"), "", invalid + `enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted`, ""},
		{"an unknown version", namespace("team", "warn-version: '2'"), plain, invalid + `warn-version]: Invalid value: "2": must be "latest" or "v1.x"`, ""},
		{"what was wrong before", namespace("team", "warn: strict"), namespace("team", "warn: strict"), "", ""},
		{"a stricter level", namespace("team", "enforce: baseline"), plain, "", `existing pods in namespace "team" violate the new PodSecurity enforce level "baseline:latest"
net (and 3 other pods): host namespaces, privileged`},
		{"a laxer level", namespace("team", "enforce: baseline"), namespace("team", "enforce: restricted"), "", ""},
		{"another label", namespace("team", "enforce: baseline, warn: baseline"), namespace("team", "enforce: baseline"), "", ""},
	} {
		got, warnings := ask(t, c, admissiontest.Request(t, q.now, q.old))
		if got != q.want || strings.Join(warnings, "\n") != q.warnings {
			t.Errorf("%s: got %q and warnings\n%s\nwant %q and\n%s", q.name, got, strings.Join(warnings, "\n"), q.want, q.warnings)
		}
	}
}

package modes

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/auth"
)

// files writes files of a directory of the test's own; their texts may name it as DIR.
func files(t *testing.T, texts map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range texts {
		write(t, filepath.Join(dir, name), strings.ReplaceAll(text, "DIR", dir))
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// away is a kubeconfig of a server that nobody is.
const away = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"

// hooked is an authorizer of a webhook, with further fields.
func hooked(name, fields string) string {
	return "- type: Webhook\n  name: " + name + "\n  webhook: {timeout: 3s, subjectAccessReviewVersion: v1, matchConditionSubjectAccessReviewVersion: v1, failurePolicy: Deny, " +
		"connectionInfo: {type: KubeConfigFile, kubeConfigFile: DIR/away}" + fields + "}\n"
}

const (
	rbac = "- {type: RBAC, name: rbac}\n"
	node = "- {type: Node, name: node}\n"
)

func TestOptionsThatCannotBeAreRefusedByTheFlag(t *testing.T) {
	dir := files(t, map[string]string{"away": away, "policy": `{"user": "a"}`, "bad": "{", "config": head + rbac, "abac": head + "- {type: ABAC, name: abac}\n"})
	in := func(name string) string { return filepath.Join(dir, name) }
	for want, o := range map[string]Options{
		`--authorization-mode: authorization-mode "Rbac" is not a valid mode; there are ABAC, AlwaysAllow, AlwaysDeny, Node, RBAC, Webhook`: {Modes: []string{"Rbac"}},
		`--authorization-mode: authorization-mode ["RBAC" "RBAC"] has mode specified more than once`:                                        {Modes: []string{"RBAC", "RBAC"}},
		"--authorization-policy-file: authorization-mode ABAC's authorization policy file not passed":                                       {Modes: []string{"ABAC"}},
		"cannot specify --authorization-policy-file without mode ABAC":                                                                      {PolicyFile: in("policy")},
		"--authorization-policy-file: read policy file: open /nowhere: no such file or directory":                                           {Modes: []string{"ABAC"}, PolicyFile: "/nowhere"},
		"--authorization-policy-file: error reading policy file " + in("bad") + ", line 1: {: unexpected":                                   {Modes: []string{"ABAC"}, PolicyFile: in("bad")},
		"--authorization-webhook-config-file: authorization-mode Webhook's authorization config file not passed":                            {Modes: []string{"Webhook"}},
		"cannot specify --authorization-webhook-config-file without mode Webhook":                                                           {Webhook: WebhookOptions{ConfigFile: in("away"), Version: "v1"}},
		"--authorization-webhook-config-file: read kubeconfig /nowhere":                                                                     {Modes: []string{"Webhook"}, Webhook: WebhookOptions{ConfigFile: "/nowhere", Version: "v1"}},
		`--authorization-webhook-version: unsupported webhook authorizer version "v2", supported versions are "v1", "v1beta1"`:              {Modes: []string{"Webhook"}, Webhook: WebhookOptions{ConfigFile: in("away"), Version: "v2"}},
		"--authorization-webhook-cache-authorized-ttl must not be negative":                                                                 {Webhook: WebhookOptions{Version: "v1", Allowed: -time.Second}},
		"--authorization-webhook-cache-unauthorized-ttl must not be negative":                                                               {Webhook: WebhookOptions{Version: "v1", Refused: -time.Second}},
		"--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined":              {Modes: []string{"RBAC"}, ConfigFile: in("config")},
		"--authorization-config: open /nowhere: no such file or directory":                                                                  {ConfigFile: "/nowhere"},
		"--authorization-config: " + in("bad") + ": ":                                                                                       {ConfigFile: in("bad")},
		"--authorization-policy-file: want the file of policies, as --authorization-config has an authorizer of type ABAC":                  {ConfigFile: in("abac")},
	} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %s", o, err, want)
		}
	}
	for _, o := range []Options{
		{}, Defaults(), {Modes: []string{"AlwaysDeny"}}, {Modes: []string{"Webhook", "ABAC"}, PolicyFile: in("policy"), Webhook: WebhookOptions{ConfigFile: in("away"), Version: "v1"}},
		{ConfigFile: in("config")}, {ConfigFile: in("abac"), PolicyFile: in("policy")},
	} {
		if err := o.Check(); err != nil {
			t.Errorf("%+v: got %v", o, err)
		}
	}
}

func TestConfigurationsThatCannotBeAreRefusedByTheField(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "the file is empty; want an apiserver.config.k8s.io/v1 AuthorizationConfiguration",
		"apiVersion: v1\nkind: Pod\n":          `no kind "Pod" is registered`,
		head:                                   "authorizers: Required value: at least one authorization mode must be defined",
		head + "- {type: RBAC}\n":              "authorizers[0].name: Required value",
		head + "- {type: Rbac, name: rbac}\n":  `authorizers[0].type: Unsupported value: "Rbac"`,
		head + rbac + rbac:                     `authorizers[1].type: Duplicate value: "RBAC"`,
		head + "- {type: RBAC, name: roles}\n": "authorizers[0].name: Invalid value: \"roles\": expected name rbac for authorizer RBAC instead of roles",
		head + "- {type: RBAC, name: rbac, webhok: {}}\n":                             `unknown field "authorizers[0].webhok"`,
		head + "- {type: RBAC, name: rbac, webhook: {}}\n":                            "authorizers[0].webhook: Invalid value",
		head + "- {type: Webhook, name: a}\n":                                         "authorizers[0].webhook: Required value: required when type=Webhook",
		head + "- {type: Webhook, name: a, webhook: {}}\n":                            "authorizers[0].timeout: Required value",
		head + hooked("A", ""):                                                        `authorizers[0].name: Invalid value: "A"`,
		head + hooked("a", "") + hooked("a", ""):                                      `authorizers[1].name: Duplicate value: "a"`,
		head + hooked("a", ", authorizedTTL: -1s"):                                    "authorizers[0].authorizedTTL: Invalid value",
		head + hooked("a", `, matchConditions: [{expression: "request.usr == 'a'"}]`): "authorizers[0].matchConditions[0].expression: Invalid value",
		head + hooked("a", `, matchConditions: [{expression: "request.user"}]`):       "must evaluate to bool but got string",
		head + strings.ReplaceAll(hooked("a", ""), "type: KubeConfigFile, kubeConfigFile: DIR/away", "type: InClusterConfig"): "authorizers[0].webhook.connectionInfo.type: Invalid value: \"InClusterConfig\": is for servers that ask this one",
		head + strings.ReplaceAll(hooked("a", ""), "DIR/away", "DIR/gone"):                                                    "authorizers[0].connectionInfo.kubeConfigFile: Invalid value",
		head + strings.ReplaceAll(hooked("a", ""), "DIR/away", "DIR/config"):                                                  "authorizers[0].webhook.connectionInfo.kubeConfigFile: read kubeconfig",
		head + strings.ReplaceAll(hooked("a", ""), "failurePolicy: Deny", "failurePolicy: Open"):                              `authorizers[0].failurePolicy: Unsupported value: "Open"`,
	} {
		dir := files(t, map[string]string{"away": away, "config": text})
		o := Options{ConfigFile: filepath.Join(dir, "config")}
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "--authorization-config: ") {
			t.Errorf("%s: got %v, want the flag and %s", text, err, want)
		}
	}
}

// bed is authorizers of options, where roles allow nothing and nodes everything.
type bed struct {
	*Authorizer
	registry *prometheus.Registry
	log      bytes.Buffer
}

func newBed(t *testing.T, o Options) *bed {
	t.Helper()
	b := &bed{registry: prometheus.NewRegistry()}
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	var err error
	b.Authorizer, err = New(o, Built{
		Node: always{decision: authorizer.DecisionAllow, reason: "a node"}, RBAC: always{decision: authorizer.DecisionNoOpinion, reason: "no role"},
		Registry: b.registry, Logger: slog.New(slog.NewTextHandler(&b.log, nil)), ID: "one",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// counted is the sum of counters with a label of that value.
func (b *bed) counted(name, value string) (n float64) {
	all, _ := b.registry.Gather() // what cannot be gathered counts nothing
	for _, f := range all {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetValue() == value {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

func (b *bed) decides(ctx context.Context, u user.Info) (authorizer.Decision, string) {
	d, reason, _ := b.Authorize(ctx, &authorizer.AttributesRecord{User: u, Verb: "get", Path: "/metrics"})
	return d, reason
}

func TestOrderDecidesAndPartsOfTheProcessAreNotLockedOut(t *testing.T) {
	dir := files(t, map[string]string{"away": away, "policy": `{"user": "alice"}`})
	alice, root := &user.DefaultInfo{Name: "alice"}, &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}
	bob := &user.DefaultInfo{Name: "bob"}
	for name, tc := range map[string]struct {
		modes  []string
		u      *user.DefaultInfo
		want   authorizer.Decision
		reason string
	}{
		"by default":              {nil, bob, authorizer.DecisionAllow, "a node"},
		"roles alone":             {[]string{"RBAC"}, bob, authorizer.DecisionNoOpinion, "no role"},
		"the first one":           {[]string{"AlwaysDeny", "AlwaysAllow"}, bob, authorizer.DecisionAllow, ""},
		"reasons of all":          {[]string{"ABAC", "RBAC", "AlwaysDeny"}, bob, authorizer.DecisionNoOpinion, "No policy matched.\nno role\nEverything is forbidden."},
		"policies":                {[]string{"AlwaysDeny", "ABAC"}, alice, authorizer.DecisionAllow, ""},
		"masters":                 {[]string{"AlwaysDeny"}, root, authorizer.DecisionAllow, ""},
		"a webhook that is away":  {[]string{"Webhook", "RBAC"}, bob, authorizer.DecisionNoOpinion, "no role"},
		"one, and who comes next": {[]string{"Webhook", "AlwaysAllow"}, bob, authorizer.DecisionAllow, ""},
	} {
		o := Options{Modes: tc.modes, Webhook: Defaults().Webhook}
		for _, mode := range tc.modes {
			switch mode {
			case ABAC:
				o.PolicyFile = filepath.Join(dir, "policy")
			case Webhook:
				o.Webhook.ConfigFile = filepath.Join(dir, "away")
			}
		}
		b := newBed(t, o)
		if d, reason := b.decides(t.Context(), tc.u); d != tc.want || reason != tc.reason {
			t.Errorf("%s: got %v, %q, want %v, %q", name, d, reason, tc.want, tc.reason)
		}
		// A part of this process is a node or has roles, whatever the modes are; what it asks about others is not its own.
		within := auth.Within(t.Context(), bob)
		if d, reason := b.decides(within, bob); d != authorizer.DecisionAllow || reason != "a node" {
			t.Errorf("%s: a part of the process: got %v, %q", name, d, reason)
		}
		if d, reason := b.decides(within, &user.DefaultInfo{Name: tc.u.Name, Groups: tc.u.Groups}); d != tc.want || reason != tc.reason {
			t.Errorf("%s: asked by a part of the process: got %v, %q, want %v, %q", name, d, reason, tc.want, tc.reason)
		}
		_, _, incomplete, _ := b.RulesFor(t.Context(), bob, "default")
		if want := strings.HasPrefix(strings.Join(tc.modes, " "), Webhook); incomplete != want {
			t.Errorf("%s: rules are incomplete: %v, want %v", name, incomplete, want)
		}
	}
}

func TestConfigurationIsReadAgainAndABadOneChangesNothing(t *testing.T) {
	dir := files(t, map[string]string{"away": away})
	file := filepath.Join(dir, "config")
	put := func(text string) { write(t, file, strings.ReplaceAll(head+text, "DIR", dir)) }
	put(rbac + hooked("first", `, matchConditions: [{expression: "request.user == 'carol'"}]`))
	b := newBed(t, Options{ConfigFile: file})
	bob, carol := &user.DefaultInfo{Name: "bob"}, &user.DefaultInfo{Name: "carol"}
	check := func(when string, u user.Info, want authorizer.Decision) {
		t.Helper()
		if d, _ := b.decides(t.Context(), u); d != want {
			t.Errorf("%s, %s: got %v, want %v; %s", when, u.GetName(), d, want, b.log.String())
		}
	}
	reloads := func(status string, want float64) {
		t.Helper()
		if got := b.counted("apiserver_authorization_config_controller_automatic_reloads_total", status); got != want {
			t.Errorf("got %v reloads with %s, want %v", got, status, want)
		}
	}
	check("at first", bob, authorizer.DecisionNoOpinion) // the webhook is not asked about bob
	check("at first", carol, authorizer.DecisionDeny)    // and its failures deny
	b.Reload()
	reloads("success", 0) // nothing has changed

	put(rbac + "- {type: AlwaysAllow, name: alwaysallow}\n")
	b.Reload()
	reloads("failure", 1) // it was not there at the start
	check("with a type that is new", carol, authorizer.DecisionDeny)
	put(node + hooked("first", ""))
	b.Reload()
	put("- {type: RBAC, name: rbac, webhok: {}}\n")
	b.Reload()
	b.Reload() // which is the same file
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	b.Reload()
	reloads("failure", 4)
	check("after bad ones", carol, authorizer.DecisionDeny)
	for _, want := range []string{"authorizer type AlwaysAllow is not allowed if it was not enabled at initial server startup", "authorizer type Node is not allowed", `unknown field \"authorizers[0].webhok\"`, "no such file"} {
		if !strings.Contains(b.log.String(), want) {
			t.Errorf("the log does not say %s: %s", want, b.log.String())
		}
	}

	put(hooked("second", `, matchConditions: [{expression: "request.user == 'bob'"}, {expression: "has(request.nonResourceAttributes)"}]`) + rbac)
	b.Reload()
	reloads("success", 1)
	check("after a good one", carol, authorizer.DecisionNoOpinion)
	check("after a good one", bob, authorizer.DecisionDeny)
	if n := b.counted("apiserver_authorization_decisions_total", "second"); n != 1 {
		t.Errorf("got %v decisions of the webhook, want one", n)
	}
}

func FuzzConfiguration(f *testing.F) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	f.Add(head + "- {type: RBAC, name: rbac}\n")
	f.Add(head + "- {type: Webhook, name: w, webhook: {timeout: 3s, authorizedTTL: 1s, unauthorizedTTL: 1s, subjectAccessReviewVersion: v1, matchConditionSubjectAccessReviewVersion: v1, failurePolicy: Deny, " +
		"connectionInfo: {type: KubeConfigFile, kubeConfigFile: /a}, matchConditions: [{expression: 'request.user == \"a\"'}]}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parse([]byte(text))
		if err != nil {
			return
		}
		for _, a := range list {
			if !slices.Contains(types, string(a.Type)) || (a.Webhook != nil) != (a.Type == Webhook) {
				t.Errorf("%q: got %+v", text, a)
			}
		}
	})
}

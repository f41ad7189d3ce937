package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const policyHead = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"

// textFile makes a file in a directory of the test's own.
func textFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPoliciesThatCannotBeAreRefusedInUpstreamsWords(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "failed decoding: Object 'Kind' is missing",
		"rules: [{level: None}]": "failed decoding: Object 'Kind' is missing",
		"{":                      "failed decoding: ",
		"apiVersion: audit.k8s.io/v1\nkind: Event\n":                             "unknown group version field audit.k8s.io/v1, Kind=Event in policy",
		"apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]": "unknown group version field audit.k8s.io/v1beta1, Kind=Policy in policy",
		policyHead:                                  "loaded illegal policy with 0 rules",
		policyHead + "rules: []":                    "loaded illegal policy with 0 rules",
		policyHead + "rules: 5":                     "failed decoding: ",
		policyHead + "rules: [{}]":                  "rules[0].level: Required value",
		policyHead + "rules: [{level: Everything}]": `rules[0].level: Unsupported value: "Everything": supported values: "None", "Metadata", "Request", "RequestResponse"`,
		policyHead + "rules: [{level: None}, {level: None, nonResourceURLs: [logs, '/lo*gs', '*']}]": `[rules[1].nonResourceURLs[0]: Invalid value: "logs": non-resource URL rules must begin with a '/' character, ` +
			`rules[1].nonResourceURLs[1]: Invalid value: "/lo*gs": non-resource URL wildcards '*' must be the final character of the rule]`,
		policyHead + "rules: [{level: None, nonResourceURLs: [/logs], namespaces: [a]}]":          `rules[0].nonResourceURLs: Invalid value: ["/logs"]: rules cannot apply to both regular resources and non-resource URLs`,
		policyHead + "rules: [{level: None, resources: [{group: rbac.authorization.k8s.io/v1}]}]": `rules[0].resources.group: Invalid value: "rbac.authorization.k8s.io/v1": a lowercase RFC 1123 subdomain`,
		policyHead + "rules: [{level: None, resources: [{resourceNames: [a]}]}]":                  `rules[0].resources.resourceNames: Invalid value: ["a"]: using resourceNames requires at least one resource`,
		policyHead + "omitStages: [Begin]\nrules: [{level: None, omitStages: [Panic, End]}]":      `[omitStages[0]: Invalid value: "Begin": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic, rules[0].omitStages[1]: Invalid value: "End"`,
	} {
		path := textFile(t, text)
		_, _, err := readPolicy(path)
		if err == nil || !strings.HasPrefix(err.Error(), "loading audit policy file: "+want) || !strings.HasSuffix(err.Error(), ": from file "+path) {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
	if _, _, err := readPolicy("/nowhere.yaml"); err == nil || !strings.Contains(err.Error(), `failed to read file path "/nowhere.yaml"`) {
		t.Errorf("a file that is not there: got %v", err)
	}
}

func TestFaultsOfAPolicyThatChangeNothingArePassedOver(t *testing.T) {
	p, strict, err := parsePolicy([]byte(policyHead + "rules:\n- level: None\n  level: Metadata\n  colour: red\n"))
	if err != nil || len(strict) != 2 || len(p.Rules) != 1 || p.Rules[0].Level != auditv1.LevelMetadata {
		t.Errorf("got %v, faults %v, %v; want a rule and two faults", p, strict, err)
	}
}

func TestFirstRuleThatFitsDecides(t *testing.T) {
	p, strict, err := parsePolicy([]byte(policyHead + `
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, users: [quiet]}
- {level: None, users: [both], userGroups: [night]}
- {level: Request, userGroups: [watched, also], verbs: [list, watch]}
- {level: Metadata, resources: [{resources: [pods/log, pods/status]}]}
- {level: Request, resources: [{group: '*', resources: ['*/scale']}]}
- {level: RequestResponse, namespaces: [kube-system], resources: [{resources: [configmaps], resourceNames: [one]}]}
- {level: RequestResponse, omitManagedFields: false, omitStages: [Panic], resources: [{group: apps, resources: ['deployments/*']}]}
- {level: Metadata, resources: [{group: batch}]}
- {level: Metadata, namespaces: ['']}
- {level: Metadata, nonResourceURLs: [/logs, '/healthz*']}
- {level: Metadata, resources: [{resources: ['*']}], verbs: [create]}
`))
	if err != nil || len(strict) > 0 {
		t.Fatal(err, strict)
	}
	made := newPolicy(p)
	const none = -1
	for _, c := range []struct {
		name string
		a    authorizer.AttributesRecord
		want int
	}{
		{"a user", of("quiet", "get", "pods"), 0},
		{"a user of two conditions", of("both", "get", "pods"), none},
		{"a group, but another verb", of("x/watched", "get", "pods"), none},
		{"the second of two groups", of("x/other,also", "list", "secrets"), 2},
		{"a subresource", of("x", "get", "pods/log"), 3},
		{"the resource of a subresource", of("x", "get", "pods"), none},
		{"a subresource of any resource", of("x", "get", "statefulsets/scale", "apps"), 4},
		{"one object", in("kube-system", of("x", "get", "configmaps"), "one"), 5},
		{"another object", in("kube-system", of("x", "get", "configmaps"), "two"), none},
		{"an object in another namespace", in("default", of("x", "get", "configmaps"), "one"), none},
		{"a resource with its subresources", of("x", "get", "deployments", "apps"), 6},
		{"a subresource of those", of("x", "get", "deployments/status", "apps"), 6},
		{"a whole group", of("x", "get", "jobs/status", "batch"), 7},
		{"what is in no namespace", in("", of("x", "get", "nodes"), "n1"), 8},
		{"a path", path("/logs"), 9},
		{"a path below it", path("/logs/a"), none},
		{"paths that begin so", path("/healthz/etcd"), 9},
		{"every resource of the core group", of("x", "create", "secrets/any"), 10},
		{"those of other groups", of("x", "create", "roles", "rbac.authorization.k8s.io"), none},
		{"nobody", authorizer.AttributesRecord{Verb: "get", Path: "/version"}, none},
	} {
		got := none
		for i := range made.rules {
			if made.of(&c.a) == &made.rules[i] {
				got = i
			}
		}
		if got != c.want {
			t.Errorf("%s: got rule %d, want %d", c.name, got, c.want)
		}
	}
	if r := made.rules[6]; r.omitManagedFields || len(r.omit) != 2 || r.omit[0] != auditv1.StageRequestReceived {
		t.Errorf("a rule with stages and managed fields of its own: got %+v", r)
	}
	if r := made.rules[0]; !r.omitManagedFields || len(r.omit) != 1 {
		t.Errorf("a rule with the policy's: got %+v", r)
	}
	if made.other.level != auditv1.LevelNone {
		t.Errorf("without a rule: got %s, want None", made.other.level)
	}
}

// of is a request for plural/sub in a group, of a user written as name/group,group.
func of(who, verb, what string, group ...string) authorizer.AttributesRecord {
	name, groups, _ := strings.Cut(who, "/")
	plural, sub, _ := strings.Cut(what, "/")
	a := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: name, Groups: strings.Split(groups, ",")}, Verb: verb,
		Namespace: "default", Resource: plural, Subresource: sub, ResourceRequest: true,
	}
	if len(group) > 0 {
		a.APIGroup = group[0]
	}
	return a
}

func in(namespace string, a authorizer.AttributesRecord, name string) authorizer.AttributesRecord {
	a.Namespace, a.Name = namespace, name
	return a
}

func path(p string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "x"}, Verb: "get", Path: p}
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	for _, c := range []struct {
		change func(o *Options)
		want   string
	}{
		{func(o *Options) { o.File.Mode = "never" }, `invalid audit log mode never, allowed modes are "batch,blocking,blocking-strict"`},
		{func(o *Options) { o.File.Format = "xml" }, `invalid audit log format xml, allowed formats are "legacy,json"`},
		{func(o *Options) { o.File.Version = "audit.k8s.io/v1beta1" }, `--audit-log-version: invalid group version "audit.k8s.io/v1beta1"`},
		{func(o *Options) { o.File.MaxAge = -1 }, "--audit-log-maxage -1 can't be a negative number"},
		{func(o *Options) { o.File.MaxBackups = -1 }, "--audit-log-maxbackup -1 can't be a negative number"},
		{func(o *Options) { o.File.MaxSize = -1 }, "--audit-log-maxsize -1 can't be a negative number"},
		{func(o *Options) { o.File.Mode, o.File.Batch.BufferSize = Batch, 0 }, "invalid audit batch log buffer size 0, must be a positive number"},
		{func(o *Options) { o.File.Mode, o.File.Batch.MaxSize = Batch, 0 }, "invalid audit batch log max batch size 0, must be a positive number"},
		{func(o *Options) { o.File.Truncate.MaxEventSize = 0 }, "invalid audit truncate log max event size 0, must be a positive number"},
		{func(o *Options) { o.Webhook.Mode = "" }, "invalid audit webhook mode , allowed modes are"},
		{func(o *Options) { o.Webhook.Batch.ThrottleQPS = 0 }, "invalid audit batch webhook throttle QPS 0, must be a positive number"},
		{func(o *Options) { o.Webhook.Batch.ThrottleBurst = -1 }, "invalid audit batch webhook throttle burst -1, must be a positive number"},
		{func(o *Options) { o.Webhook.Truncate.MaxBatchSize = 5 }, "invalid audit truncate webhook max batch size 5, must be greater than max event size (102400)"},
		{func(o *Options) { o.Webhook.Version = "v1" }, `--audit-webhook-version: invalid group version "v1"`},
		{func(o *Options) { o.Webhook.InitialBackoff = -1 }, "--audit-webhook-initial-backoff -1ns can't be negative"},
		{func(o *Options) { o.PolicyFile = "/nowhere" }, "loading audit policy file: "},
	} {
		o := Defaults()
		c.change(&o)
		if o.PolicyFile == "" {
			if err := o.Check(); err != nil {
				t.Errorf("%s: what is not used is looked at: %v", c.want, err)
			}
		}
		o.File.Path, o.Webhook.ConfigFile = "a", "b"
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	o := Defaults()
	o.File.Path, o.Webhook.ConfigFile, o.File.Batch.BufferSize = "a", "b", 0 // which blocking does not use
	if err := o.Check(); err != nil {
		t.Errorf("the defaults: got %v", err)
	}
}

package encryption

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/store/seal"
	"github.com/kemudi/kemudi/test/wait"
)

// Keys of 32 bytes.
const (
	keyA = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	keyB = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
)

func byKey(form, name, secret string) string {
	return "{" + form + ": {keys: [{name: " + name + ", secret: " + secret + "}]}}"
}

func TestConfigurationsThatCannotBeAreRefused(t *testing.T) {
	good := byKey("aescbc", "a", keyA)
	for text, want := range map[string]string{
		"":       "resources: Required value: at least one resources is required",
		"- {}\n": "[resources[0].resources: Required value: at least one resources[0].resources is required, resources[0].providers: Required value: at least one resources[0].providers is required]",
		"- {resources: [secrets, '*.'], providers: [" + good + "]}":                                                          `resources[0].resources: Invalid value: ["secrets","*."]: using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked`,
		"- {resources: [secrets, '*.*'], providers: [" + good + "]}":                                                         `resources[0].resources: Invalid value: ["secrets","*.*"]: using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked`,
		"- {resources: [secrets, secrets], providers: [" + good + "]}":                                                       `resources[0].resources: Invalid value: ["secrets","secrets"]: the same resource cannot be specified multiple times`,
		"- {resources: [Secrets], providers: [" + good + "]}":                                                                `resources[0].resources[0]: Invalid value: "Secrets": resource name should not contain capital letters`,
		"- {resources: ['*'], providers: [" + good + "]}":                                                                    `resources[0].resources[0]: Invalid value: "*": use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources`,
		"- {resources: [events.events.k8s.io], providers: [" + good + "]}":                                                   `resources[0].resources[0]: Invalid value: "events.events.k8s.io": '*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file`,
		"- {resources: ['pods.*'], providers: [" + good + "]}":                                                               `resources[0].resources[0]: Invalid value: "pods.*": encrypting the same resource across groups is not supported`,
		"- {resources: [serviceipallocations], providers: [" + good + "]}":                                                   `resources[0].resources[0]: Invalid value: "serviceipallocations": resources which do not have REST API/s cannot be encrypted`,
		"- {resources: [secrets], providers: [{}]}":                                                                          `resources[0].providers[0]: Invalid value: "": provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity`,
		"- {resources: [secrets], providers: [{aescbc: {keys: []}}]}":                                                        `resources[0].providers[0].aescbc.keys: Required value: at least one keys is required`,
		"- {resources: [secrets], providers: [" + byKey("secretbox", "a", "c2hvcnQ=") + "]}":                                 `resources[0].providers[0].secretbox.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, got 5, expected one of [32]`,
		"- {resources: [secrets], providers: [" + byKey("aesgcm", "a", "'???'") + "]}":                                       `resources[0].providers[0].aesgcm.keys[0].secret: Invalid value: "REDACTED": secrets must be base64 encoded`,
		"- {resources: [secrets], providers: [" + byKey("aesgcm", "''", keyA) + "]}":                                         `resources[0].providers[0].aesgcm.keys[0].name: Required value: name is a mandatory field for a key`,
		"- {resources: [secrets], providers: [{identity: {}, secretbox: {keys: []}}]}":                                       `[resources[0].providers[0]: Invalid value: "secretbox, identity": more than one provider specified in a single element, should split into different list elements, resources[0].providers[0].secretbox.keys: Required value: at least one keys is required]`,
		"- {resources: [secrets], providers: [{kms: {apiVersion: v2, name: 'a:b'}}]}":                                        `[resources[0].providers[0].kms.name: Invalid value: "a:b": invalid KMS provider name a:b, must not contain ':', resources[0].providers[0].kms.endpoint: Invalid value: "": endpoint is a mandatory field for a kms]`,
		"- {resources: [secrets], providers: [{kms: {apiVersion: v2, name: a, endpoint: 'tcp://x', cachesize: 3}}]}":         `[resources[0].providers[0].kms.endpoint: Invalid value: "tcp://x": unsupported scheme "tcp" for KMS provider, only unix is supported, resources[0].providers[0].kms.cachesize: Invalid value: 3: cachesize is not supported in v2]`,
		"- {resources: [secrets], providers: [{kms: {name: a, endpoint: 'unix:///x'}}]}":                                     errOldKMS.Error(),
		"- {resources: ['*.apps'], providers: [" + good + "]}\n- {resources: [deployments.apps], providers: [" + good + "]}": `resource "deployments.apps" is masked by earlier rule "*.apps"`,
		"- {resources: ['*.*'], providers: [" + good + "]}\n- {resources: ['*.'], providers: [" + good + "]}":                `resource "*." is masked by earlier rule "*.*"`,
		"- {resources: [secrets], keys: []}":                                                                                 `unknown field "keys"`,
	} {
		file := filepath.Join(t.TempDir(), "encryption.yaml")
		write(t, file, text)
		o := Options{File: file}
		if err := o.Check(); err == nil || !strings.HasPrefix(err.Error(), "--encryption-provider-config: ") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		} else if strings.Contains(err.Error(), keyA) {
			t.Errorf("%s: the error has the key", text)
		}
	}
	o := Options{File: "/nowhere/encryption.yaml"}
	if err := o.Check(); err == nil || err.Error() != `--encryption-provider-config: error reading encryption provider configuration file "/nowhere/encryption.yaml": open /nowhere/encryption.yaml: no such file or directory` {
		t.Errorf("a file that is not there: got %v", err)
	}
	if err := (&Options{Reload: true}).Check(); err == nil {
		t.Error("nothing to reload: got no error")
	}
	if s := fmt.Sprintf("%v %+v %#v", key{"a", keyA}, key{"a", keyA}, key{"a", keyA}); strings.Contains(s, keyA) {
		t.Errorf("a key shows itself: %s", s)
	}
}

func TestKeysOfTheStoreAreOfResources(t *testing.T) {
	n := newNames(api.All())
	for key, want := range map[string]string{
		"/registry/secrets/default/a":                    "secrets",
		"/registry/services/specs/default/a":             "services",
		"/registry/services/endpoints/default/a":         "endpoints",
		"/registry/deployments/default/a":                "deployments.apps",
		"/registry/ingress/default/a":                    "ingresses.networking.k8s.io",
		"/registry/example.com/gadgets/default/a":        "gadgets.example.com",
		"/registry/example.com/gadgets/a":                "gadgets.example.com",
		"/registry/apiregistration.k8s.io/apiservices/a": "apiservices.apiregistration.k8s.io",
		"/registry/ranges/serviceips":                    "",
		"/registry/masterleases/10.0.0.1":                "",
		"/registry/kemudi/x":                             "",
		"/registry/":                                     "",
		"/other/secrets/a/b":                             "",
	} {
		gr, ok := n.of(key)
		if got := gr.String(); !ok && want != "" || ok && got != want {
			t.Errorf("%s: got %s, %t, want %s", key, got, ok, want)
		}
	}
}

func TestEarlierAndNarrowerRulesComeFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	write(t, file, "- {resources: [events], providers: [{identity: {}}]}\n- {resources: [secrets, gadgets.example.com], providers: ["+byKey("aesgcm", "a", keyA)+"]}\n"+
		"- {resources: ['*.apps'], providers: ["+byKey("aescbc", "b", keyB)+"]}\n- {resources: ['*.*'], providers: ["+byKey("secretbox", "c", keyB)+"]}\n")
	c, err := read(file, true)
	if err != nil {
		t.Fatal(err)
	}
	all, err := newChains(c, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for resource, want := range map[string]string{
		"events": "", "secrets": "k8s:enc:aesgcm:v1:a:", "gadgets.example.com": "k8s:enc:aesgcm:v1:a:", "deployments.apps": "k8s:enc:aescbc:v1:b:",
		"pods": "k8s:enc:secretbox:v1:c:", "widgets.example.com": "k8s:enc:secretbox:v1:c:",
	} {
		if got := all.of(schema.ParseGroupResource(resource)).Writes(); got != want {
			t.Errorf("%s: got %q, want %q", resource, got, want)
		}
	}
}

func TestFileIsTakenOverWhenItChangesIfItIsGood(t *testing.T) {
	b := newBed(t, "- {resources: [secrets], providers: ["+byKey("aesgcm", "a", keyA)+"]}")
	if got := b.HealthCheck(); got != "kms-providers" {
		t.Errorf("health check: got %q", got)
	}
	old, err := b.seal("v")
	if err != nil {
		t.Fatal(err)
	}
	failures := func(n float64) func() error {
		return func() error {
			if got := b.counted("apiserver_encryption_config_controller_automatic_reloads_total", "failure"); got < n {
				return fmt.Errorf("%v failures are counted, want %v", got, n)
			}
			return nil
		}
	}
	write(t, b.file, "- {resources: [secrets], providers: ["+byKey("aesgcm", "b", "c2hvcnQ=")+"]}")
	wait.Until(t, failures(1))
	if value, stale, err := b.open(old); err != nil || stale || value != "v" {
		t.Errorf("with a bad file: got %q, stale %t, %v", value, stale, err)
	}
	if err := os.Remove(b.file); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, failures(2))
	if _, err := b.seal("v"); err != nil {
		t.Errorf("without the file: %v", err)
	}
	if !b.log.has("the last good one stays in force") || b.log.has(keyA) {
		t.Error("the log does not say that the file is bad, or has a key")
	}
	write(t, b.file, "- {resources: [secrets], providers: ["+byKey("secretbox", "b", keyB)+", "+byKey("aesgcm", "a", keyA)+"]}")
	wait.Until(t, func() error {
		if _, stale, err := b.open(old); err != nil || !stale {
			return errors.Join(errors.New("the file is not taken over"), err)
		}
		return nil
	})
	<-b.readable
	next, err := b.seal("v")
	if err != nil || seal.Prefix(next) != "k8s:enc:secretbox:v1:b:" {
		t.Errorf("got prefix %q, %v", seal.Prefix(next), err)
	}
	if b.counted("apiserver_encryption_config_controller_automatic_reloads_total", "success") != 1 || b.counted("apiserver_encryption_config_controller_last_config_info") != 1 {
		t.Error("the success is not counted")
	}
}

// FuzzConfiguration has what is found good encrypt, and read again what it has encrypted.
func FuzzConfiguration(f *testing.F) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
	for _, form := range []string{"aescbc", "aesgcm", "secretbox"} {
		f.Add(head + "- {resources: [secrets, '*.example.com'], providers: [" + byKey(form, "a", keyA) + ", {identity: {}}]}\n")
	}
	f.Add(head + "- {resources: ['*.*'], providers: [{kms: {apiVersion: v2, name: a, endpoint: 'unix:///a.sock', timeout: 1s}}]}\n")
	secrets := schema.GroupResource{Resource: "secrets"}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parse([]byte(text))
		if err != nil || len(c.validate(true)) > 0 {
			return
		}
		all, err := newChains(c, nil, func(*kms) (seal.Provider, error) { return seal.Provider{}, nil })
		if err != nil {
			return // rules that hide one another
		}
		chain := all.of(secrets)
		if chain == nil {
			return
		}
		const value = "{}"
		stored, err := chain.Seal([]byte(value), "/registry/secrets/a/b")
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if got, _, err := chain.Open(t.Context(), stored, "/registry/secrets/a/b"); err != nil || string(got) != value {
			t.Errorf("%q: got %q, %v, want what was stored", text, got, err)
		}
	})
}

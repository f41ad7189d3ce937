package serviceaccount

import (
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
)

func TestPodsHaveTheSecretsOfTheirAccountAloneIfItSaysSo(t *testing.T) {
	w := admissiontest.New(t,
		`ServiceAccount: {metadata: {namespace: team, name: strict, annotations: {kubernetes.io/enforce-mountable-secrets: "true"}}, secrets: [{name: own}], imagePullSecrets: [{name: registry}]}`,
		`ServiceAccount: {metadata: {namespace: team, name: lax, annotations: {kubernetes.io/enforce-mountable-secrets: "no"}}}`)
	c := admission.NewChain(New(w.Options()))
	const secret = " is not allowed because service account strict does not reference that "
	for spec, want := range map[string]string{
		`volumes: [{name: v, secret: {secretName: own}}], containers: [{name: c, envFrom: [{secretRef: {name: own}}]}]`:    "",
		`volumes: [{name: v, secret: {secretName: other}}]`:                                                                `volume with secret.secretName="other"` + secret + "secret",
		`volumes: [{name: v, projected: {sources: [{secret: {name: other}}]}}]`:                                            `volume with secret.secretName="other"` + secret + "secret",
		`initContainers: [{name: i, env: [{name: E, valueFrom: {secretKeyRef: {name: other, key: k}}}]}]`:                  `init container i with envVar E referencing secret.secretName="other"` + secret + "secret",
		`containers: [{name: c, env: [{name: E, value: x}, {name: F, valueFrom: {secretKeyRef: {name: other, key: k}}}]}]`: `container c with envVar F referencing secret.secretName="other"` + secret + "secret",
		`containers: [{name: c, envFrom: [{configMapRef: {name: m}}, {secretRef: {name: other}}]}]`:                        `container c with envFrom referencing secret.secretName="other"` + secret + "secret",
		`imagePullSecrets: [{name: registry}, {name: other}]`:                                                              `imagePullSecrets[1].name="other"` + secret + "imagePullSecret",
		`ephemeralContainers: [{name: e, envFrom: [{secretRef: {name: other}}]}]`:                                          `ephemeral container e with envFrom referencing secret.secretName="other"` + secret + "secret",
	} {
		pod := func(account string) *admission.Attributes {
			return admissiontest.Request(t, `Pod: {metadata: {namespace: team, name: x}, spec: {serviceAccountName: `+account+`, `+spec+`}}`, "")
		}
		if got := admissiontest.Run(t, c, pod("strict")); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", spec, got, want)
		}
		if got := admissiontest.Run(t, c, pod("lax")); got != "" {
			t.Errorf("%s: got %q of an account that does not say so", spec, got)
		}
	}
}

package tokens_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/controllers/tokens"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/sim"
)

// TestTokensThatNobodyUsesAreRefusedAndThenDeleted has a token of old refused when nobody
// has used it for two days, and deleted when nobody has missed it for two more. What a
// person has made, a pod mounts, or may be used, stays.
func TestTokensThatNobodyUsesAreRefusedAndThenDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := pki.NewAuthority("test")
		if err != nil {
			t.Fatal(err)
		}
		issuer, err := authn.NewIssuer(authn.IssuerOptions{Key: ca.Key})
		if err != nil {
			t.Fatal(err)
		}
		p := sim.Plane(t, plane.Options{Controllers: controllers.Options{Tokens: issuer, LegacyTokens: tokens.Options{CleanUpPeriod: 48 * time.Hour}}})
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot"}}
		for _, name := range []string{"old", "used", "mounted", "odd"} {
			sa.Secrets = append(sa.Secrets, corev1.ObjectReference{Name: name})
		}
		if _, err := client.For(p.Admin(), core.ServiceAccounts).Create(t.Context(), sa); err != nil {
			t.Fatal(err)
		}
		secrets := client.For(p.Admin(), core.Secrets)
		for _, name := range []string{"old", "used", "mounted", "odd", "by-hand"} {
			s := &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"},
			}}
			switch name {
			case "used":
				s.Labels = map[string]string{core.LabelTokenLastUsed: "2000-01-09"}
			case "odd":
				s.Labels = map[string]string{core.LabelTokenLastUsed: "lately"}
			}
			if _, err := secrets.Create(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := client.For(p.Admin(), core.Pods).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c", Image: "c"}},
				Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "mounted"}}}},
			},
		}); err != nil {
			t.Fatal(err)
		}
		there := func() string {
			var list []string
			for _, s := range client.Cached(p.Admin(), core.Secrets, "").List("default", nil) {
				if s.Type == corev1.SecretTypeServiceAccountToken {
					list = append(list, fmt.Sprintf("%s=%s", s.Name, s.Labels[core.LabelTokenInvalidSince]))
				}
			}
			slices.Sort(list)
			return strings.Join(list, " ")
		}
		time.Sleep(71 * time.Hour) // uses are noted from the second day on
		if got, want := there(), "by-hand= mounted= odd= old= used="; got != want {
			t.Errorf("before its time: got %s, want %s", got, want)
		}
		time.Sleep(2 * time.Hour)
		if got, want := there(), "by-hand= mounted= odd= old=2000-01-04 used="; got != want {
			t.Errorf("after two days without a use: got %s, want %s", got, want)
		}
		time.Sleep(72 * time.Hour)
		if got, want := there(), "by-hand= mounted= odd= used="; got != want {
			t.Errorf("after two more: got %s, want %s", got, want)
		}
	})
}

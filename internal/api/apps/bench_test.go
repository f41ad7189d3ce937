package apps

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/resource"
)

func BenchmarkShowDeploymentInExtensions(b *testing.B) {
	d := deployment()
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "nginx:1.27"}}
	defaultDeployment(d)
	from := Deployments.Versions[2].From
	b.ReportAllocs()
	for b.Loop() {
		if _, err := from(d); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidateDeployment(b *testing.B) {
	d := deployment()
	d.Spec.Template.Labels = map[string]string{"app": "web"}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "nginx:1.27"}}
	defaultDeployment(d)
	b.ReportAllocs()
	for b.Loop() {
		errs := resource.NewErrors()
		Deployments.Validate(d, nil, errs)
		if errs.Len() > 0 {
			b.Fatal(errs.List())
		}
	}
}

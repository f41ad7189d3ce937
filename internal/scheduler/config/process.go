package config

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	componentv1alpha1 "k8s.io/component-base/config/v1alpha1"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kemudi/kemudi/internal/leader"
)

// election is how processes agree on who schedules.
func election(l *componentv1alpha1.LeaderElectionConfiguration) leader.Settings {
	return leader.Settings{
		Off: !*l.LeaderElect, LeaseDuration: l.LeaseDuration.Duration, RenewDeadline: l.RenewDeadline.Duration, RetryPeriod: l.RetryPeriod.Duration,
		Lock: l.ResourceLock, Namespace: l.ResourceNamespace, Names: []string{l.ResourceName},
	}
}

func validateLeader(l *componentv1alpha1.LeaderElectionConfiguration) (errs field.ErrorList) {
	if !*l.LeaderElect {
		return nil
	}
	path := field.NewPath("leaderElection")
	if l.LeaseDuration.Duration <= 0 {
		errs = append(errs, field.Invalid(path.Child("leaseDuration"), l.LeaseDuration, "must be greater than zero"))
	}
	if l.RenewDeadline.Duration <= 0 {
		errs = append(errs, field.Invalid(path.Child("renewDeadline"), l.RenewDeadline, "must be greater than zero"))
	}
	if l.RetryPeriod.Duration <= 0 {
		errs = append(errs, field.Invalid(path.Child("retryPeriod"), l.RetryPeriod, "must be greater than zero"))
	}
	if l.LeaseDuration.Duration <= l.RenewDeadline.Duration {
		errs = append(errs, field.Invalid(path.Child("leaseDuration"), l.RenewDeadline, "LeaseDuration must be greater than RenewDeadline"))
	}
	if l.RenewDeadline.Duration <= l.RetryPeriod.Duration {
		errs = append(errs, field.Invalid(path.Child("renewDeadline"), l.RetryPeriod, "RenewDeadline must be greater than RetryPeriod"))
	}
	if l.ResourceLock != "leases" {
		errs = append(errs, field.Invalid(path.Child("resourceLock"), l.ResourceLock, `resourceLock value must be "leases"`))
	}
	if len(errs) > 0 {
		return errs
	}
	// What follows upstream finds out when it starts to elect, or rounds.
	if l.LeaseDuration.Duration%time.Second != 0 {
		errs = append(errs, field.Invalid(path.Child("leaseDuration"), l.LeaseDuration, "must be whole seconds"))
	}
	if l.RenewDeadline.Duration <= leader.Late(l.RetryPeriod.Duration) {
		errs = append(errs, field.Invalid(path.Child("renewDeadline"), l.RenewDeadline, "renewDeadline must be greater than retryPeriod*JitterFactor, "+leader.Late(l.RetryPeriod.Duration).String()))
	}
	return errs
}

// IdleField is a field of a configuration that is good and has no effect here.
type IdleField struct{ Field, Why string }

// idleFields are those that are set: the scheduler runs in the process of the API server.
func idleFields(f *configv1.KubeSchedulerConfiguration) (idle []IdleField) {
	const (
		inside  = "the scheduler calls the API within its process"
		encoded = "what it sends and gets is not encoded"
		counted = "its calls are limited by number, not by rate"
		shared  = "the caches are those of the API server"
		served  = "--profiling and --contention-profiling say so for all of the process"
	)
	c, d := &f.ClientConnection, &f.DebuggingConfiguration
	for _, x := range []struct {
		set        bool
		field, why string
	}{
		{c.Kubeconfig != "", "clientConnection.kubeconfig", inside},
		{c.AcceptContentTypes != "", "clientConnection.acceptContentTypes", encoded},
		{c.ContentType != "", "clientConnection.contentType", encoded},
		{c.QPS != 0, "clientConnection.qps", counted},
		{c.Burst != 0, "clientConnection.burst", counted},
		{d.EnableProfiling != nil, "enableProfiling", served},
		{d.EnableContentionProfiling != nil, "enableContentionProfiling", served},
		{f.DelayCacheUntilActive, "delayCacheUntilActive", shared},
	} {
		if x.set {
			idle = append(idle, IdleField{x.field, x.why})
		}
	}
	return idle
}

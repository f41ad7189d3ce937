// Package cronjob creates a Job for each time that a CronJob's schedule names,
// and removes those that ended long ago.
//
// Start at Reconcile in cronjob.go. plan.go decides what is due (pure: a CronJob,
// its Jobs and the time in, a status and what is to be done out).
//
// A Job is named after the minute for which it was made, so that none is made
// twice, whenever we are killed.
package cronjob

// Package batch declares the resources of the API group batch: Jobs and
// CronJobs, one file a kind. What their controllers do is not here.
package batch

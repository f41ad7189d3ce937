// Package usage says what an object takes of the quotas of its namespace: which
// of a quota's amounts it counts for, how much of each, and whether it is in the
// quota's scopes.
//
// Start at [For]. Everything here is a pure function of objects and quotas; who
// refuses by it is admission/quota, who adds it up is controllers/resourcequota.
// Counts of objects (count/deployments.apps) are known for every resource with
// namespaces; what else pods, services and claims take has a file each.
package usage

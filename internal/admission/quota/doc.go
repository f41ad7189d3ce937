// Package quota is the ResourceQuota plugin: it refuses what would take more than
// the quotas of a namespace allow, and charges them for the rest in the
// transaction of the write itself. What an object takes says api/core/usage; what
// is given back, controllers/resourcequota counts. The plugin's configuration names
// what nobody may have without a quota (limitedResources).
//
// Invariants, cited by number in the code:
//
//	Q1 A write that takes more is committed only together with the new status.used of every quota it is charged to, each as the plugin saw it before. What fails, or is only tried, charges nothing.
//	Q2 A write is committed only if the namespace has the quotas that the plugin saw: whoever makes a quota, or changes what it is about, writes the namespace anew in the same transaction, and every such write relies on the namespace.
//	Q3 The writes of one namespace that are charged go one after the other within a process: otherwise all but one of those under way would have to start again each time. Between processes the transactions decide.
package quota

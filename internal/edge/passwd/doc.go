// Package passwd checks passwords against the hashes that htpasswd, openssl and crypt(3) write.
// Start at [Parse] and [Match].
//
// It holds no users and no state, and makes no hashes. Whose password it is, and how often somebody
// may try, is the business of who asks.
package passwd

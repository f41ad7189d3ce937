package nft

import "golang.org/x/sys/unix"

// AtLeast holds if the register has the value or a larger one, AtMost if it has that or
// a smaller one: both as numbers in the byte order of the network, such as ports.
func AtLeast(r Reg, value []byte) Expr { return cmp(unix.NFT_CMP_GTE, r, value) }

// AtMost is described at AtLeast.
func AtMost(r Reg, value []byte) Expr { return cmp(unix.NFT_CMP_LTE, r, value) }

// IsReply holds if the packet goes to who began its connection.
func IsReply(scratch Reg) []Expr {
	return []Expr{ct(unix.NFT_CT_DIRECTION, scratch, false), Equal(scratch, []byte{1})}
}

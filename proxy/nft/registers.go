package nft

// registers are the sixteen 32-bit registers that the expressions of a rule hand data on in.
type registers struct {
	data [64]byte
	// unknown are those that hold something that is not known.
	unknown [16]bool
}

// bytes are what registers hold from one on. It is empty if there are not so many.
func (r *registers) bytes(reg int8, n int) []byte {
	at := 4 * int(reg)
	if reg < 0 || at+n > len(r.data) {
		return nil
	}
	return r.data[at : at+n]
}

// known tells whether all of so many bytes are.
func (r *registers) known(reg int8, n int) bool {
	if r.bytes(reg, n) == nil {
		return false
	}
	for i := range align4(n) / 4 {
		if r.unknown[int(reg)+i] {
			return false
		}
	}
	return true
}

// store puts something into registers, and fills whole ones. It tells whether there are so many.
func (r *registers) store(reg int8, b []byte, known bool) bool {
	n := align4(len(b))
	at := r.bytes(reg, n)
	if at == nil {
		return false
	}
	clear(at)
	copy(at, b)
	for i := range n / 4 {
		r.unknown[int(reg)+i] = !known
	}
	return true
}

// bitwise runs the expression of that name, in the form that all kernels have: and a mask, xor a value.
func (r *registers) bitwise(o *op) bool {
	n := len(o.mask)
	from := r.bytes(o.src, n)
	if from == nil || len(o.value) != n {
		return false
	}
	result := make([]byte, n)
	for i := range result {
		result[i] = from[i]&o.mask[i] ^ o.value[i]
	}
	return r.store(o.dst, result, r.known(o.src, n))
}

package lease

// Validate returns what Lease would say of the name and the options, and makes nothing: for
// settings that are read before they are used. That a handle of the name exists is no error.
func (k *Keeper) Validate(name string, opts ...Option) error {
	_, err := k.configure(name, opts)
	return err
}

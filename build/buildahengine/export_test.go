package buildahengine

// Driver is the storage driver in use.
func (e *Engine) Driver() string { return e.o.Driver }

package deploy

import (
	"errors"
	"fmt"
)

// Class says what kind of thing went wrong, as far as somebody has to do something different about it.
type Class string

// The classes. Everything that is not told apart is ClassInternal.
const (
	ClassUnreachable  Class = "RegistryUnreachable"
	ClassUnauthorized Class = "RegistryUnauthorized"
	ClassForbidden    Class = "RegistryForbidden"
	ClassNotFound     Class = "ImageNotFound"
	ClassRegistry     Class = "RegistryError"
	ClassUntrusted    Class = "CertificateNotTrusted"
	ClassExpired      Class = "CertificateExpired"
	ClassCorrupted    Class = "CorruptedImage"
	ClassHostile      Class = "ImageNotAllowed"
	ClassArchitecture Class = "WrongArchitecture"
	ClassNotBootable  Class = "ImageNotBootable"
	ClassNoKernel     Class = "ImageWithoutKernel"
	ClassUnlike       Class = "ImageUnlikeConfig"
	ClassUnsigned     Class = "SignatureRejected"
	ClassDiskFull     Class = "DiskFull"
	ClassEtcConflict  Class = "EtcMergeConflict"
	ClassNotOSTree    Class = "NotAnOSTreeHost"
	ClassConfig       Class = "BadConfiguration"
	ClassInternal     Class = "Internal"
)

// Fault is a classified error: what was done, why it failed and what to do next.
type Fault struct {
	Class Class
	Op    string // verb and object: "fetch layer sha256:…"
	Next  string // what the admin does next; may be empty
	Err   error
}

// Error gives operation, cause and advice in one line.
func (f *Fault) Error() string {
	s := fmt.Sprintf("%s: %s", f.Op, f.Class)
	if f.Err != nil {
		s = fmt.Sprintf("%s: %v", f.Op, f.Err)
	}
	if f.Next != "" {
		s += "; next: " + f.Next
	}
	return s
}

// Unwrap gives the cause.
func (f *Fault) Unwrap() error { return f.Err }

// ClassOf tells the class of the first Fault in err's chain; ClassInternal when there is none.
func ClassOf(err error) Class {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f.Class
	}
	return ClassInternal
}

//! Borrowed dense arrays whose shape is known at run time only.

use crate::Element;

/// A dense row-major array with its shape, for the `_dyn` forms.
#[derive(Clone, Copy, Debug)]
pub struct DynView<'a, T> {
    /// The elements.
    pub data: &'a [T],
    /// Extents, outermost first.
    pub shape: &'a [usize],
}

/// A dense row-major array to write to, with its shape.
#[derive(Debug)]
pub struct DynViewMut<'a, T> {
    /// The elements.
    pub data: &'a mut [T],
    /// Extents, outermost first.
    pub shape: &'a [usize],
}

impl<'a, T: Element> DynView<'a, T> {
    /// Puts data and shape together. Whether they fit is checked by the call that takes the view.
    pub fn new(data: &'a [T], shape: &'a [usize]) -> Self {
        DynView { data, shape }
    }
}

impl<'a, T: Element> DynViewMut<'a, T> {
    /// Puts data and shape together. Whether they fit is checked by the call that takes the view.
    pub fn new(data: &'a mut [T], shape: &'a [usize]) -> Self {
        DynViewMut { data, shape }
    }
}

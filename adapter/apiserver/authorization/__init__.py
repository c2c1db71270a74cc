"""Whether the sender may: SubjectAccessReviews and what is remembered of them."""

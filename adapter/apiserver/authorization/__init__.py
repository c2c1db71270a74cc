"""Authorization: SubjectAccessReviews and their cache."""

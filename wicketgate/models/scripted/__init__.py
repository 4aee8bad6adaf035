"""A fixed program in the place of a model, so that the gate can be tried without an account.

Public: ``model.ScriptedModel``, the provider ``scripted``. ``arguments`` reads the arguments of a call from a message,
``arguments`` knows those of two servers before a refusal, ``wording`` puts results in words.
"""

